"""FedMR: what its terms add to the loss, and how prototypes travel."""

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tff_pcdd import losses, methods
from tff_pcdd.federated import ClientWork, make_message
from tff_pcdd.federated.state import initial_client_state


def client(round_number=1, valid=(True, True, True, False)):
    prototypes = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
    return methods.Client(
        class_counts=tf.constant([3.0, 4.0, 0.0, 2.0]),
        constants={},
        anchor=[],
        state={},
        server={"prototypes": tf.constant(prototypes), "valid": tf.constant(valid)},
        round=tf.constant(round_number),
        steps=tf.constant(1),
        seed=tf.zeros(2, tf.int32),
    )


def evaluate(**options):
    spec = support.training_spec("fedmr", statistics=False, **options)
    # Keras draws the network from global state; another draw may have a sample without features.
    tf.keras.utils.set_random_seed(1)
    net = spec.network()
    batch = methods.Batch(tf.constant(support.TEST["x"]), tf.constant(support.TEST["y"]), None)
    _, metrics = spec.method.loss(net, batch, client())
    return metrics, net["backbone"](batch.x).numpy()


def inter(features, labels, prototypes, valid):
    """Mean over pairs (class present, other valid class) of the mean margin violation."""
    terms = []
    for own in np.unique(labels):
        for other in range(len(valid)):
            if valid[own] and valid[other] and own != other:
                x = features[labels == own]
                near = np.linalg.norm(x - prototypes[own], axis=1)
                far = np.linalg.norm(x - prototypes[other], axis=1)
                terms.append(np.mean(np.maximum(near - far, 0)))
    return np.mean(terms)


def test_lengths_do_not_count_in_the_normalized_inter_term():
    metrics, features = evaluate(mu1=0.0, mu2=0.1, normalize=True)
    server = {name: value.numpy() for name, value in client().server.items()}
    unit = [v / np.linalg.norm(v, axis=1)[:, None] for v in (features, server["prototypes"])]
    expected = inter(unit[0], support.TEST["y"], unit[1], server["valid"])
    np.testing.assert_allclose(metrics["inter"], expected, rtol=1e-4)


def test_lite_takes_the_first_samples_of_the_shuffled_batch():
    metrics, features = evaluate(mu1=0.0, mu2=0.1, inter_samples=10)
    server = client().server
    expected = inter(
        features[:10], support.TEST["y"][:10], server["prototypes"].numpy(), server["valid"].numpy()
    )
    np.testing.assert_allclose(metrics["inter"], expected, rtol=1e-4)


def test_inter_term_waits_for_prototypes_and_warm_up():
    spec = support.training_spec("fedmr", statistics=False, mu1=0.0, mu2=0.1, warmup_rounds=3)
    net = spec.network()
    batch = methods.Batch(tf.constant(support.TEST["x"]), tf.constant(support.TEST["y"]), None)
    for round_number, valid, zero in (
        (2, [True] * 4, True),
        (3, [True] * 4, False),
        (3, [False] * 4, True),
    ):
        _, metrics = spec.method.loss(net, batch, client(round_number, valid))
        assert (float(metrics["inter"]) == 0) == zero


@pytest.mark.integration
# By default, all of them send prototypes.
@pytest.mark.parametrize(("share", "sent"), support.rare_but([(0.0, 0)], [(1.0, 3), (0.0, 0)]))
def test_share_of_clients_that_send_prototypes(simulation, share, sent):
    process = support.process("fedmr", prototype_share=share)
    state, _, metrics = support.run_rounds(process, process.initialize(), {}, [[0, 1, 2]])
    assert int(metrics["sent"]) == sent
    assert bool(np.any(state.server["valid"])) == bool(sent)


def test_the_same_clients_send_prototypes_in_all_rounds():
    spec = support.training_spec("fedmr", statistics=False, prototype_share=0.5)
    work = ClientWork(spec)
    message = make_message(spec.method, support.server_state(spec))
    senders = 0
    for number in range(40):
        own = initial_client_state(spec, support.seed_of(0, number))
        sent = []
        for round_number in range(4):
            data = support.client_data(0, 0)._replace(seed=support.seed_of(0, round_number, number))
            result = work.update(message, own, data)
            own = result["state"]
            sent.append(float(result["sent"]))
            assert bool(np.any(result["sums"]["counts"])) == bool(sent[-1])
        assert len(set(sent)) == 1
        senders += sent[0]
    # Three standard deviations of a binomial distribution around 20.
    assert abs(senders - 20) <= 9


def test_clients_have_no_state_if_all_send():
    spec = support.training_spec("fedmr", statistics=False)
    assert initial_client_state(spec, support.seed_of(0)).own == {}


def test_bytes_are_counted(simulation):
    process = support.process("fedmr")
    # Prototype sums [4, 6] and counts [4], float32; prototypes and their validity come back.
    assert process.extra_bytes == 4 * (4 * 6 + 4)
    plain = support.process("fedavg")
    assert process.download_bytes - plain.download_bytes == 4 * 4 * 6 + 4


def test_golden_values_through_the_public_functions(golden):
    case = golden("fedmr_losses")
    features = tf.constant(case["features"])
    value = losses.intra_class(features, case["labels"], int(case["C"]))
    np.testing.assert_allclose(value, case["intra_paper_fro2_unbiased"], rtol=1e-5)

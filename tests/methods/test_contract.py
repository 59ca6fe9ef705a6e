"""What holds for every registered method; a new one is covered by being registered.

What holds for its combinations with aggregators, normalizations and exports is in test_matrix.
"""

import importlib
import os
import re
import types

import numpy as np
import pytest
import tensorflow as tf

from tests import support
from tff_pcdd import export, methods, runtime
from tff_pcdd.federated import build_process

pytestmark = pytest.mark.integration

COHORTS = [[0, 1, 2], [1, 3, 4], [0, 2, 3], [0, 1, 4]]


# A method with FedMR's prototypes is composed of one of the others; what is added is the same.
AIDED = [name for name in methods.names() if name.endswith("_prototypes")]
OFTEN = [name for name in methods.names() if name not in AIDED[1:]]


@pytest.fixture(scope="module", params=support.rare_but(OFTEN, methods.names()))
def name(request):
    return request.param


@pytest.fixture(scope="module")
def spec(name):
    return support.training_spec(name)


@pytest.fixture(scope="module")
def process(spec, simulation):
    """The computations of a method; building them takes most of a test's time."""
    return build_process(spec)


@pytest.fixture(scope="module")
def four_rounds(process):
    state = process.initialize()
    return support.run_rounds(process, state, {}, COHORTS)


# What a method may do otherwise in an evaluation, besides training.
HOOKS = (
    "placement", "begin", "embed", "client_state", "initial_personal",
    "personalize", "personal_logits", "personal_phases", "global_logits",
)  # fmt: skip


def hooks_of(name):
    method = support.training_spec(name).method
    return method.has_global_model, *(getattr(type(method), hook) for hook in HOOKS)


# The last of the methods that have the same hooks: one whose rounds are not rare, if there is one.
EVALUATED = [*{hooks_of(name): name for name in [*AIDED, *OFTEN]}.values()]
in_an_evaluation_of_its_own = pytest.mark.parametrize(
    "name", support.rare_but(EVALUATED, methods.names()), indirect=True, scope="module"
)


def test_docstring_names_the_source(name):
    module = importlib.import_module(methods.get(name).__module__)
    text = " ".join(module.__doc__.split())
    assert re.search(r"\w; [^;]+; [^.]*\b(19|20)\d\d\b", text), "give title; authors; venue year"
    assert "Differs from" in text or name in ("fedavg", "central", "local")


def test_rounds_are_finite(four_rounds):
    for leaf in tf.nest.flatten(four_rounds[:2]):
        assert np.all(np.isfinite(np.asarray(leaf, np.float64)))
    assert float(four_rounds[2]["sums"]["samples"]) > 0


def test_training_changes_the_weights(process, four_rounds):
    before, after = process.initialize(), four_rounds[0]
    changed = [
        np.any(a != b)
        for a, b in zip(
            tf.nest.flatten(before.weights["trainable"]),
            tf.nest.flatten(after.weights["trainable"]),
            strict=True,
        )
    ]
    personal = [
        np.any(a != b)
        for client, state in four_rounds[1].items()
        for a, b in zip(
            tf.nest.flatten(process.initial_client_state(support.seed_of(0, client)).personal),
            tf.nest.flatten(state.personal),
            strict=True,
        )
    ]
    assert all(changed) and (changed or any(personal))


def test_fixed_variables_stay(process, four_rounds):
    support.assert_trees_equal(
        process.initialize().weights["fixed"], four_rounds[0].weights["fixed"]
    )


def test_state_keeps_its_type(process):
    signature = process.next.type_signature
    assert signature.result[0].is_assignable_from(signature.parameter[0])
    assert signature.result[1].member.is_assignable_from(signature.parameter[1].member)


def test_result_depends_on_the_seed(process, four_rounds):
    """And on nothing else: that two and two rounds are four is tested below, bit for bit."""
    other = support.run_rounds(process, process.initialize(), {}, COHORTS, seed=1)
    flat, flat_other = tf.nest.flatten(four_rounds[:2]), tf.nest.flatten(other[:2])
    assert any(np.any(a != b) for a, b in zip(flat, flat_other, strict=True))


def test_two_and_two_rounds_are_four(process, four_rounds):
    state, clients, _ = support.run_rounds(process, process.initialize(), {}, COHORTS[:2])
    as_numpy = tf.nest.map_structure(np.asarray, (state, clients))
    state, clients, _ = support.run_rounds(process, *as_numpy, COHORTS[2:], first=2)
    support.assert_trees_equal((state, clients), four_rounds[:2])


def test_absent_clients_keep_their_state(process):
    state, clients, _ = support.run_rounds(process, process.initialize(), {}, COHORTS[:1])
    kept = tf.nest.map_structure(np.asarray, clients[2])
    _, clients, _ = support.run_rounds(process, state, clients, [[0, 1]], first=1)
    support.assert_trees_equal(clients[2], kept)
    assert int(clients[0].participations) == 2
    assert int(clients[2].participations) == 1


def test_a_cohort_without_samples_changes_no_weights(process):
    state = process.initialize()
    after, _, _ = support.run_rounds(process, state, {}, [[4]])
    support.assert_trees_equal(after.weights, state.weights)


@in_an_evaluation_of_its_own
def test_evaluation_counts(spec, process, four_rounds):
    state, clients, _ = four_rounds
    total = np.bincount(support.TEST["y"], minlength=support.NUM_CLASSES)
    counts = process.evaluate_global(state, support.TEST)
    np.testing.assert_array_equal(counts["total"], total)
    for correct in counts["correct"].values():
        assert np.all((np.asarray(correct) >= 0) & (np.asarray(correct) <= total))
    cohort = sorted(clients)
    arguments = (
        state,
        [clients[client] for client in cohort],
        [support.client_data(client, 4, test=support.TEST) for client in cohort],
    )
    results = process.evaluate_personal(*arguments)
    if not spec.method.has_global_model:
        # It is traced for these methods only. What is counted before local epochs does not depend
        # on whether they follow.
        for before, result in zip(process.evaluate_before(*arguments), results, strict=True):
            for name in ("total", "before", "before_masked"):
                np.testing.assert_array_equal(before[name], result[name])
    for client, result in zip(cohort, results, strict=True):
        np.testing.assert_array_equal(result["total"], total)
        absent = np.bincount(support.CLIENTS[client]["y"], minlength=support.NUM_CLASSES) == 0
        if not absent.all():
            assert not np.asarray(result["before_masked"])[absent].any()
            assert not np.asarray(result["after_masked"])[absent].any()


@in_an_evaluation_of_its_own
def test_models_for_export_answer_as_the_evaluation_counted(spec, process, four_rounds):
    state, clients, _ = four_rounds
    trained = types.SimpleNamespace(
        spec=spec,
        process=process,
        federation=support.federation(),
        invoke=lambda computation, *arguments: computation(*arguments),
        state=state,
    )

    def correct(model):
        hits = support.TEST["y"][
            np.argmax(model.logits(support.TEST["x"]), axis=1) == support.TEST["y"]
        ]
        return np.bincount(hits, minlength=support.NUM_CLASSES)

    if spec.method.has_global_model:
        counts = process.evaluate_global(state, support.TEST)
        np.testing.assert_array_equal(
            correct(export.global_model(trained)), counts["correct"]["head"]
        )
    # With two classes, and with a single sample.
    inputs = {
        client: (clients[client], support.client_data(client, 4, test=support.TEST))
        for client in (0, 2)
    }
    trained.personal_inputs = inputs.get
    models = export.PersonalModels(trained)
    results = process.evaluate_personal(state, *map(list, zip(*inputs.values(), strict=True)))
    for client, counts in zip(inputs, results, strict=True):
        np.testing.assert_array_equal(correct(models.model(client)), counts["after"])


def rounds_on(process, used):
    """The states of the server and of the clients on another runtime."""
    with used:
        state, clients, _ = support.run_rounds(process, process.initialize(), {}, COHORTS)
        return tf.nest.map_structure(np.asarray, (state, clients))


OTHERS = {
    "tff": lambda _: runtime.use("tff", insecure=True),
    "ray": lambda request: runtime.installed(request.getfixturevalue("ray_actors")),
}


# Of these methods, clients and server keep nothing, keep norms, learn a generator, send no weights,
# send nothing, and keep and send more than weights.
KINDS = ["fedavg", "fedbn", "fedgen", "fedproto", "local", "scaffold"]


@pytest.mark.parametrize(
    "name", support.rare_but(KINDS, methods.names()), indirect=True, scope="module"
)
def test_rounds_are_the_same_for_any_number_of_clients_at_a_time(process, four_rounds):
    """By default, as many train as there are cores."""
    number = 1 if len(os.sched_getaffinity(0)) > 1 else 2
    other = rounds_on(process, runtime.use("inprocess", client_parallelism=number))
    support.assert_trees_equal(other, four_rounds[:2])


# Other runtimes take most of the time. Ray, which takes seconds to start, trains FedDyn in
# runtime/test_ray_runs.
@pytest.mark.parametrize(
    ("name", "other"),
    support.rare_but(
        [("scaffold", "tff")], [(name, other) for name in methods.names() for other in OTHERS]
    ),
    indirect=["name"],
    scope="module",
)
def test_rounds_agree_on_every_runtime(process, four_rounds, other, request):
    result = rounds_on(process, OTHERS[other](request))
    tf.nest.assert_same_structure(four_rounds[:2], result, check_types=False)
    for a, b in zip(tf.nest.flatten(four_rounds[:2]), tf.nest.flatten(result), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-4)

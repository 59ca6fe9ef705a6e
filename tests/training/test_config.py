"""Settings: what is derived from what, json and back, and every refusal."""

import json

import pytest

from tff_pcdd import methods
from tff_pcdd.options import OptionError, option_fields
from tff_pcdd.training import ExperimentConfig, RunOptions

DIRICHLET = {"partition": "dirichlet", "concentration": 0.3}


def test_seeds_follow_the_seed_unless_given():
    config = ExperimentConfig.from_settings(seed=5, model_seed=7)
    assert (config.data_seed, config.cohort_seed, config.batch_seed) == (5, 5, 5)
    assert config.model_seed == 7
    assert config.data_config().seed == 5
    assert ExperimentConfig.from_settings(seed=5, data_seed=0).data_config().seed == 0


def test_personal_evaluation_follows_the_global_one_unless_given():
    assert ExperimentConfig.from_settings(eval_every=3).personal_eval_every == 3
    assert ExperimentConfig.from_settings(eval_every=3, personal_eval_every=0).personal_eval_every == 0


def test_projection_follows_the_method_unless_given():
    assert ExperimentConfig.from_settings(algorithm="fedavg").projection_dim == 0
    assert ExperimentConfig.from_settings(algorithm="fedgela").projection_dim == 84
    assert ExperimentConfig.from_settings(algorithm="fedgela", projection_dim=0).projection_dim == 0


@pytest.mark.parametrize(
    ("dataset", "algorithm", "options", "width"),
    [
        ("cifar10", "fedgela", {}, 84),
        ("cifar100", "fedgela", {}, 512),
        ("imagenet_lt", "fedge", {}, 2048),
        ("cifar100", "fedgela", {"classifier": "trainable"}, 84),
        ("cifar100", "fedmr", {}, 84),
        ("cifar100", "fedloge", {}, 0),
    ],
)
def test_projection_has_room_for_the_classes(dataset, algorithm, options, width):
    config = ExperimentConfig.from_settings(
        algorithm=algorithm,
        method_options=options,
        dataset=dataset,
        data_dir="there",
        partition="iid",
    )
    assert config.projection_dim == width


def test_method_options_are_completed_and_reach_the_method():
    config = ExperimentConfig.from_settings(algorithm="fedgela", fedgela_scale=2.5)
    assert config.method() == methods.create("fedgela", scale=2.5)
    assert config.method_options == {
        field.name: getattr(config.method(), field.name)
        for field in option_fields(methods.get("fedgela"))
    }


def test_settings_of_other_partitions_are_none():
    config = ExperimentConfig.from_settings(**DIRICHLET)
    assert config.classes_per_client is None
    assert config.max_clients is None
    assert (config.concentration, config.min_samples, config.assignment) == (0.3, 10, "class")
    assert ExperimentConfig.from_settings().concentration is None


@pytest.mark.parametrize(
    "values",
    [
        {},
        DIRICHLET,
        {"partition": "iid", "num_clients": 4, "clients_per_round": 4, "imbalance_factor": 10},
        {"algorithm": "fedgela", "method_options": {"scale": 2.0, "masked": True}, "seed": 3},
        {"dataset": "femnist", "partition": "natural", "data_dir": "there", "max_clients": 4},
        *({"algorithm": name} for name in methods.names()),
    ],
)
def test_json_and_back(values):
    config = ExperimentConfig.from_settings(**values)
    text = json.dumps(config.to_json())
    again = ExperimentConfig.from_json(json.loads(text))
    assert again == config
    assert json.dumps(again.to_json()) == text
    assert again.digest() == config.digest()


def test_json_holds_flags():
    """Every key is a flag of tasks.train, a method's options under the method's name."""
    values = ExperimentConfig.from_settings(algorithm="fedgela", fedgela_scale=2.0).to_json()
    assert values["fedgela_scale"] == 2.0
    assert "method_options" not in values
    own = {name for name in values if not name.startswith("fedgela_")}
    assert own == {field.name for field in option_fields(ExperimentConfig)}


def test_digest_tells_settings_apart():
    digests = {
        ExperimentConfig.from_settings(**values).digest()
        for values in (
            {},
            {"seed": 1},
            {"algorithm": "fedgela"},
            {"algorithm": "fedgela", "method_options": {"scale": 2.0}},
        )
    }
    assert len(digests) == 4
    assert ExperimentConfig.from_settings(rounds=30).digest() == ExperimentConfig.from_settings().digest()


REFUSED = [
    ({"algorithm": "fedsgd"}, "--algorithm=fedsgd: choose one of .*fedavg"),
    (
        {"algorithm": "fedgela", "method_options": {"mu": 1}},
        "fedgela has no option 'mu', only scale, ",
    ),
    ({"algorithm": "fedgela", "method_options": {"scale": 0.0}}, "--fedgela_scale=0.0: must be g"),
    ({"dataset": "mnist"}, "--dataset='mnist': choose one of .*digits"),
    ({"model": "vgg"}, "--model=vgg: choose one of .*simple_cnn"),
    ({"partition": "shards"}, "--partition=shards: choose one of class, dirichlet, iid, natural"),
    ({"num_clients": 0}, "--num_clients=0: must be at least 1"),
    ({"num_clients": -2}, "--num_clients=-2: must be at least 1"),
    ({"num_clients": "5"}, "--num_clients=5: must be a whole number"),
    ({"classes_per_client": 0}, "--classes_per_client=0: must be at least 1"),
    ({"classes_per_client": 11}, "--classes_per_client=11: digits has 10 classes"),
    ({"num_clients": 3}, "3 clients with classes_per_client=2 cannot hold all 10 classes"),
    ({"concentration": 0.5}, "--concentration=0.5: applies only with --partition=dirichlet"),
    ({"min_samples": 5}, "--min_samples=5: applies only with --partition=dirichlet"),
    ({"assignment": "sample"}, "--assignment=sample: applies only with --partition=dirichlet"),
    ({"local_test": "disjoint"}, "--local_test=disjoint: applies only with"),
    ({"max_clients": 5}, "--max_clients=5: applies only with --partition=natural"),
    ({**DIRICHLET, "classes_per_client": 2}, "--classes_per_client=2: applies only with .*=class"),
    ({**DIRICHLET, "concentration": 0.0}, "--concentration=0.0: must be greater than 0"),
    ({**DIRICHLET, "min_samples": -1}, "--min_samples=-1: must be at least 0"),
    ({**DIRICHLET, "assignment": "x"}, "--assignment=x: choose one of class, sample"),
    ({**DIRICHLET, "local_test": "x"}, "--local_test=x: choose one of disjoint, overlapping"),
    ({"partition": "natural"}, "--partition=natural: digits has no users"),
    ({"partition": "natural", "num_clients": 5}, "--num_clients=5: applies only with"),
    ({"dataset": "femnist", "partition": "natural"}, "data_dir is missing"),
    ({"imbalance_factor": 0.5}, "--imbalance_factor=0.5: must be at least 1"),
    ({"max_train_samples": 0}, "--max_train_samples=0: must be at least 1"),
    ({"max_train_samples": 9}, "--max_train_samples=9 does not give every one of 10 clients"),
    ({"max_test_samples": 0}, "--max_test_samples=0: must be at least 1"),
    ({"augmentation": "more"}, "--augmentation=more: choose one of none, standard"),
    ({"input_normalization": "imagenet"}, "--input_normalization='imagenet' needs colour images"),
    (
        {"input_normalization": "x"},
        "--input_normalization=x: choose one of dataset, imagenet, none",
    ),
    ({"num_classes": 10}, "--num_classes=10: applies only with --dataset=femnist|shakespeare"),
    ({"split_centres": 20}, "--split_centres=20: applies only with --dataset=fed_isic2019"),
    ({"projection_dim": -1}, "--projection_dim=-1: must be at least 0"),
    ({"rounds": 0}, "--rounds=0: must be at least 1"),
    ({"rounds": 2.5}, "--rounds=2.5: must be a whole number"),
    ({"clients_per_round": -1}, "--clients_per_round=-1: must be at least 0"),
    (
        {"clients_per_round": 11},
        "--clients_per_round=11: there are only --num_clients=10 clients to draw from",
    ),
    ({"local_epochs": 0}, "--local_epochs=0: must be at least 1"),
    ({"batch_size": 0}, "--batch_size=0: must be at least 1"),
    ({"client_learning_rate": 0.0}, "--client_learning_rate=0.0: must be greater than 0"),
    ({"client_learning_rate": float("nan")}, "--client_learning_rate=nan: must be a finite"),
    ({"client_momentum": 1.0}, "--client_momentum=1.0: must be at most 0.9999"),
    ({"client_momentum": -0.1}, "--client_momentum=-0.1: must be at least 0"),
    ({"client_weight_decay": -1.0}, "--client_weight_decay=-1.0: must be at least 0"),
    ({"client_clip_norm": -1.0}, "--client_clip_norm=-1.0: must be at least 0"),
    ({"eval_every": 0}, "--eval_every=0: must be at least 1"),
    ({"personal_eval_every": -1}, "--personal_eval_every=-1: must be at least 0"),
    *(
        ({name: -1}, f"--{name}=-1: must be at least 0")
        for name in ("seed", "data_seed", "model_seed", "cohort_seed", "batch_seed")
    ),
]


@pytest.mark.parametrize(("values", "message"), REFUSED)
def test_refusals(values, message):
    with pytest.raises(OptionError, match=message) as caught:
        ExperimentConfig.from_settings(**values)
    assert "\n" not in str(caught.value)


def test_runtime_options():
    assert RunOptions().runtime_options() == {"client_parallelism": None, "devices": ()}
    assert RunOptions(devices="CPU:0,CPU:1", client_parallelism=2).runtime_options() == {
        "client_parallelism": 2,
        "devices": ("CPU:0", "CPU:1"),
    }
    assert RunOptions(runtime="tff").runtime_options() == {}
    assert RunOptions(runtime="remote", workers="a:1,b:2").runtime_options() == {
        "workers": ["a:1", "b:2"],
        "worker_timeout": 60.0,
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"runtime": "gpu"}, "--runtime=gpu: choose one of inprocess, tff, remote"),
        ({"runtime": "remote"}, "--runtime=remote: needs --workers=host:port"),
        ({"workers": "a:1"}, "--workers=a:1: applies only with --runtime=remote"),
        ({"worker_timeout": 5.0}, "--worker_timeout=5.0: applies only with --runtime=remote"),
        ({"runtime": "tff", "devices": "CPU:0"}, "--devices=CPU:0: applies only with"),
        ({"runtime": "tff", "client_parallelism": 2}, "--client_parallelism=2: applies only with"),
        ({"client_parallelism": 0}, "--client_parallelism=0: must be at least 1"),
        ({"runtime": "remote", "workers": "a:1", "worker_timeout": 0.0}, "--worker_timeout=0.0"),
        ({"eval_batch_size": 0}, "--eval_batch_size=0: must be at least 1"),
        ({"checkpoint_every": 0}, "--checkpoint_every=0: must be at least 1"),
        ({"keep_checkpoints": 0}, "--keep_checkpoints=0: must be at least 1"),
        ({"client_store": "cloud"}, "--client_store=cloud: choose one of memory, disk"),
        ({"progress": "no"}, "--progress=no: must be true or false"),
    ],
)
def test_refusals_of_run_options(values, message):
    with pytest.raises(OptionError, match=message):
        RunOptions(**values)

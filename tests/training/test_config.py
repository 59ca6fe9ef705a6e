"""Settings: what is derived from what, flat form and back, and every refusal."""

import dataclasses
import inspect
import json
import sys

import mypy.api
import pytest

from tests import setting_types
from tests.data.refusals import refuses
from tff_pcdd import methods, models, runtime
from tff_pcdd.data import DataConfig
from tff_pcdd.evaluation import metrics
from tff_pcdd.experiment.config import SEEDS
from tff_pcdd.settings import build, describe, flat_name, flatten, option_fields
from tff_pcdd.studies import compare
from tff_pcdd.training import (
    ComputeOptions,
    EvaluationConfig,
    ExperimentConfig,
    RunOptions,
    Simulation,
    TrainingConfig,
    run_experiment,
)

DIRICHLET = {"partition": "dirichlet", "concentration": 0.3}


def test_editors_and_type_checkers_know_the_settings():
    """`python -m tests.setting_types` writes the file anew."""
    assert setting_types.FILE.read_text(encoding="utf-8") == setting_types.text()
    for method in (ExperimentConfig.from_settings, ExperimentConfig.with_settings):
        assert inspect.signature(method).parameters["values"].annotation == "Unpack[Settings]"


def test_mypy_finds_wrong_names_and_types(tmp_path):
    """In the file alone: what it imports of the package would take most of a minute."""
    lines = [
        "from typing import Unpack",
        "def from_settings(**values: Unpack[Settings]) -> None: ...",
        "from_settings(algorithm='fedgela', rounds=10, fedgela_scale=2, projection_dim=None)",
        "from_settings(rounds='10')",
        "from_settings(lr=0.1)",
        "from_settings(client_weighting='equal')",
    ]
    path = tmp_path / "example.py"
    text = setting_types.text()
    path.write_text("\n".join([text, *lines]))
    limit = sys.getrecursionlimit()
    out, _, _ = mypy.api.run([str(path), "--no-error-summary", "--cache-dir", str(tmp_path)])
    sys.setrecursionlimit(limit)  # Mypy raises it, and other tests exceed it on purpose.
    first = len(text.splitlines()) + 2
    found = [
        (int(line.split(":")[1]) - first, line) for line in out.splitlines() if "error" in line
    ]
    assert [place for place, _ in found] == [3, 4, 5]
    assert 'expected "int | None"' in found[0][1]
    assert 'Unexpected keyword argument "lr"' in found[1][1]
    assert "expected \"Literal['published', 'uniform', 'samples'] | None\"" in found[2][1]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("lr", "client_learning_rate"),
        ("algoritm", "algorithm"),
        ("epochs", "local_epochs"),
        ("concentratio", "concentration"),
    ],
)
def test_a_setting_of_another_name_is_suggested(name, meant):
    with refuses(name, f"^there is no such setting; did you mean {meant}\\?$"):
        ExperimentConfig.from_settings(**{name: 1})


def test_components_are_named_in_constructors_too():
    config = ExperimentConfig(
        method="fedprox",
        data=DataConfig(source="digits", partition="dirichlet"),
        model=models.ModelConfig(backbone="mlp"),
        training=TrainingConfig(optimizer="adam", schedule="cosine"),
        aggregator="robust",
        server_optimizer="fedadam",
        evaluation=EvaluationConfig(metrics=("balanced", metrics.create("worst_class"))),
    )
    assert config == ExperimentConfig.from_settings(
        algorithm="fedprox",
        partition="dirichlet",
        model="mlp",
        client_optimizer="adam",
        schedule="cosine",
        aggregator="robust",
        server_optimizer="fedadam",
        metrics="balanced,worst_class",
    )
    assert EvaluationConfig(metrics="balanced").metrics == (metrics.create("balanced"),)
    assert ComputeOptions(runtime="tff").runtime == runtime.create("tff")


@pytest.mark.parametrize(
    ("make", "setting", "reason"),
    [
        (lambda: ExperimentConfig(method="fedgla"), "algorithm", "did you mean fedgela"),
        (lambda: ExperimentConfig(model="mlp"), "model", r"must be a ModelConfig, such as Exper"),
        (lambda: ExperimentConfig(training=3), "training", r"\(training=TrainingConfig\(…\)\)$"),
        (lambda: Simulation("fedavg"), "config", "must be an ExperimentConfig: Exper"),
        (lambda: run_experiment("fedavg", "/no"), "config", "must be an ExperimentConfig: Exper"),
        (
            lambda: run_experiment(ExperimentConfig(), "/no", {"progress": False}),
            "options",
            r"must be RunOptions, such as RunOptions\(progress=False\)",
        ),
        (lambda: compare(["fedavg"], "/no"), "config", "must be an ExperimentConfig: Exper"),
        (lambda: compare({"a": ExperimentConfig()}, "/no"), "configs", "must be a sequence of"),
        (lambda: ExperimentConfig(method=3), "algorithm", "choose one of apfl, "),
        (lambda: ExperimentConfig(aggregator="means"), "aggregator", "did you mean mean"),
        (lambda: DataConfig(source="digit"), "dataset", "did you mean digits"),
        (lambda: EvaluationConfig(metrics="balance"), "metrics", "did you mean balanced"),
        (lambda: EvaluationConfig(metrics=("balanced",) * 2), "metrics", "name each once"),
    ],
)
def test_unknown_names_in_constructors(make, setting, reason):
    with refuses(setting, reason):
        make()


def test_a_configuration_is_shown_by_what_differs_from_the_defaults():
    config = ExperimentConfig.from_settings(
        algorithm="fedgela", fedgela_scale=3.0, metrics="balanced", seed=3, num_clients=10
    )
    shown = "ExperimentConfig(algorithm='fedgela', fedgela_scale=3.0, metrics='balanced', seed=3)"
    assert repr(config) == shown
    assert repr(ExperimentConfig()) == "ExperimentConfig()"
    assert "projection_dim=7" in repr(config.with_settings(projection_dim=7))


@pytest.mark.parametrize("dataset", ["sent140", "shakespeare", "tff_shakespeare"])
def test_texts_suggest_a_backbone_for_texts(dataset):
    config = ExperimentConfig.from_settings(dataset=dataset, data_dir="/not/there")
    assert config.model.backbone.name == "lstm"
    described = {setting.name: setting.help for setting in describe(ExperimentConfig)}
    assert "default of texts: lstm" in described["model"]


def test_a_configuration_shows_defaults_in_place_of_what_its_data_suggest():
    own = {"dataset": "table", "data_dir": "x.csv", "feature_columns": "all"}
    config = ExperimentConfig.from_settings(**own, partition="class", model="simple_cnn")
    assert repr(config) == (
        "ExperimentConfig(dataset='table', data_dir='x.csv', feature_columns='all', "
        "partition='class', model='simple_cnn')"
    )
    again = eval(f"ExperimentConfig.from_settings{repr(config).removeprefix('ExperimentConfig')}")
    assert again == config


def test_seeds_follow_the_seed_unless_given():
    config = ExperimentConfig.from_settings(seed=5, model_seed=7)
    training = config.training
    assert (config.data.seed, training.cohort_seed, training.batch_seed) == (5, 5, 5)
    assert config.model.seed == 7
    assert ExperimentConfig.from_settings(seed=5, data_seed=0).data.seed == 0


def test_projection_follows_the_method_unless_given():
    def width(**values):
        return ExperimentConfig.from_settings(**values).model.projection_dim

    assert width(algorithm="fedavg") == 0
    assert width(algorithm="fedgela") == 84
    assert width(algorithm="fedgela", projection_dim=0) == 0


@pytest.mark.parametrize(
    ("dataset", "algorithm", "options", "width"),
    [
        ("cifar10", "fedgela", {}, 84),
        ("cifar100", "fedgela", {}, 512),
        ("imagenet_lt", "fedge", {}, 2048),
        ("cifar100", "fedgela", {"fedgela_classifier": "trainable"}, 84),
        ("cifar100", "fedmr", {}, 84),
        ("cifar100", "fedloge", {}, 0),
    ],
)
def test_projection_has_room_for_the_classes(dataset, algorithm, options, width):
    config = ExperimentConfig.from_settings(
        algorithm=algorithm, dataset=dataset, data_dir="there", partition="iid", **options
    )
    assert config.model.projection_dim == width


def test_method_options_are_completed_and_reach_the_method():
    config = ExperimentConfig.from_settings(algorithm="fedgela", fedgela_scale=2.5)
    assert config.method == methods.create("fedgela", scale=2.5)
    assert config.algorithm == "fedgela"
    settings = config.to_settings()
    for field in option_fields(methods.get("fedgela")):
        name = flat_name(methods.get("fedgela"), field)
        assert name in (f"fedgela_{field.name}", "client_weighting")
        assert settings[name] == getattr(config.method, field.name)


def test_settings_of_other_partitions_are_absent():
    settings = ExperimentConfig.from_settings(**DIRICHLET).to_settings()
    assert "classes_per_client" not in settings
    assert "max_clients" not in settings
    found = settings["concentration"], settings["min_samples"], settings["assignment"]
    assert found == (0.3, 10, "class")
    assert "concentration" not in ExperimentConfig.from_settings().to_settings()


@pytest.mark.parametrize(
    "values",
    [
        {},
        DIRICHLET,
        {"partition": "iid", "num_clients": 4, "clients_per_round": 4, "imbalance_factor": 10},
        {"algorithm": "fedgela", "fedgela_scale": 2.0, "fedgela_masked": True, "seed": 3},
        {"dataset": "femnist", "partition": "natural", "data_dir": "there", "max_clients": 4},
        {"metrics": "worst_class,balanced", "validation_fraction": 0.2},
        *({"algorithm": name} for name in methods.names()),
    ],
)
def test_json_and_back(values):
    config = ExperimentConfig.from_settings(**values)
    text = json.dumps(config.to_settings())
    again = ExperimentConfig.from_settings(**json.loads(text))
    assert again == config
    assert json.dumps(again.to_settings()) == text
    assert again.digest() == config.digest()


def test_flat_settings_are_those_that_are_described():
    """Every key is a flag of tasks.train, a method's options behind the method's name."""
    config = ExperimentConfig.from_settings(algorithm="fedgela", fedgela_scale=2.0)
    values = config.to_settings()
    assert values["fedgela_scale"] == 2.0
    described = {setting.name: setting for setting in describe(ExperimentConfig)}
    assert len(described) == len(describe(ExperimentConfig))
    chosen = {
        name
        for name, setting in described.items()
        if setting.chosen_by is None or values[setting.chosen_by] in setting.applies_to
    }
    assert set(values) == chosen
    for name in ("algorithm", "dataset", "partition", "model", "aggregator", "rounds", "seed"):
        assert name in chosen


def test_the_digest_of_the_defaults_is_that_of_runs_without_an_order_of_classes():
    """As without `class_order` in the settings, which were those of the runs before it."""
    assert ExperimentConfig.from_settings().digest() == "3dc0c27aeb6f"
    shuffled = ExperimentConfig.from_settings(class_order="shuffled")
    assert shuffled.digest() != "3dc0c27aeb6f"
    assert ExperimentConfig.from_settings(**shuffled.to_settings()) == shuffled


def test_digest_tells_settings_apart():
    digests = {
        ExperimentConfig.from_settings(**values).digest()
        for values in (
            {},
            {"seed": 1},
            {"algorithm": "fedgela"},
            {"algorithm": "fedgela", "fedgela_scale": 2.0},
        )
    }
    assert len(digests) == 4
    given, default = ExperimentConfig.from_settings(rounds=30), ExperimentConfig.from_settings()
    assert given.digest() == default.digest()


def test_both_zeros_have_one_digest():
    zero, negative = (ExperimentConfig.from_settings(client_momentum=z) for z in (0.0, -0.0))
    assert zero == negative
    assert zero.digest() == negative.digest()


def test_whole_numbers_and_floats_that_are_equal_have_one_digest():
    """That of the command line, which earlier versions wrote into summary.json."""
    settings = {"algorithm": "fedgela", "fedgela_scale": 2.0, "client_learning_rate": 1.0}
    floats = ExperimentConfig.from_settings(**settings)
    whole = ExperimentConfig.from_settings(
        **settings | {"fedgela_scale": 2, "client_learning_rate": 1}
    )
    assert whole == floats
    assert {floats.digest(), whole.digest()} == {"5b8c75f62a4e"}


def test_with_settings_changes_what_is_named():
    config = ExperimentConfig.from_settings(algorithm="fedgela", fedgela_scale=2.0, seed=4)
    changed = config.with_settings(rounds=7, client_momentum=0.5)
    expected = {**config.to_settings(), "rounds": 7, "client_momentum": 0.5}
    assert changed.to_settings() == expected
    assert config.training.rounds == 30
    assert config.with_settings() == config


def test_with_settings_gives_another_component_its_defaults():
    config = ExperimentConfig.from_settings(
        algorithm="fedprox", fedprox_mu=0.5, num_clients=7, classes_per_client=4
    )
    other = config.with_settings(algorithm="fedgela", fedgela_scale=3.0, partition="iid")
    assert other.method == methods.create("fedgela", scale=3.0)
    assert other.data.partition.name == "iid"
    assert other.data.partition.num_clients == 10
    # The same choice again also brings the defaults back.
    assert config.with_settings(algorithm="fedprox").method == methods.create("fedprox")


def test_with_settings_derives_again_what_was_derived():
    config = ExperimentConfig.from_settings(seed=3, model_seed=8)
    other = config.with_settings(seed=4, algorithm="fedgela")
    assert (other.data.seed, other.model.seed, other.training.batch_seed) == (4, 8, 4)
    assert other.model.projection_dim == 84
    given = config.with_settings(projection_dim=16).with_settings(algorithm="fedgela")
    assert given.model.projection_dim == 16


def test_with_settings_keeps_what_was_given():
    # The same partition for all seeds, also where it has the number of the first one.
    config = ExperimentConfig.from_settings(seed=0, data_seed=0, projection_dim=0)
    other = config.with_settings(seed=5, algorithm="fedgela")
    assert other.seeds == (0, 5, 5, 5, 5)
    assert other.model.projection_dim == 0
    assert other.with_settings(seed=6).seeds == (0, 6, 6, 6, 6)
    assert other.with_settings(data_seed=None, projection_dim=None).seeds == (5, 5, 5, 5, 5)
    # What was derived is known after a part was replaced, and what the new part gives is kept.
    part = dataclasses.replace(config.training, batch_seed=7, local_epochs=2)
    replaced = dataclasses.replace(config, training=part)
    assert replaced.with_settings(seed=5).seeds == (0, 5, 5, 7, 5)


def test_a_record_does_not_say_what_was_given():
    config = ExperimentConfig.from_settings(seed=3, data_seed=3, model_seed=8, algorithm="fedgela")
    read = ExperimentConfig.from_record(config.to_settings())
    assert read == config
    other = read.with_settings(seed=4, algorithm="fedavg")
    assert other.seeds == (4, 8, 4, 4, 4)
    assert other.model.projection_dim == 0


def test_with_settings_refuses_what_does_not_apply():
    config = ExperimentConfig.from_settings(algorithm="fedgela")
    with refuses("fedprox_mu", "applies only with algorithm=fedprox"):
        config.with_settings(fedprox_mu=0.1)
    with refuses("speed", "no such setting"):
        config.with_settings(speed=1)
    with refuses("rounds", "at least 1"):
        config.with_settings(rounds=0)


def test_objects_in_place_of_flat_settings():
    config = ExperimentConfig(
        method=methods.create("fedgela", scale=2.0),
        model=models.ModelConfig(backbone=models.create("mlp")),
    )
    assert config == ExperimentConfig.from_settings(
        algorithm="fedgela", fedgela_scale=2.0, model="mlp"
    )


def test_metrics_are_chosen_by_their_names():
    config = ExperimentConfig.from_settings(metrics="worst_class, balanced")
    assert config.evaluation.metrics == tuple(map(metrics.create, ("worst_class", "balanced")))
    assert config.to_settings()["metrics"] == "worst_class,balanced"
    assert ExperimentConfig.from_settings().to_settings()["metrics"] is None
    with refuses("metrics", "choose one of balanced, macro_f1, weighted_f1, worst_class") as caught:
        ExperimentConfig.from_settings(metrics="balanced,median")
    assert caught.value.value == "median"


# Further settings of data are in tests/data/test_config.py.
REFUSED = [
    ({"algorithm": "fedsgd"}, "algorithm", "choose one of .*fedavg"),
    ({"algorithm": "fedgela", "fedgela_mu": 1}, "fedgela_mu", "there is no such setting"),
    ({"algorithm": "fedgela", "fedgela_scale": 0.0}, "fedgela_scale", "must be greater than 0"),
    ({"model": "vgg"}, "model", "choose one of .*simple_cnn"),
    ({"num_clients": "5"}, "num_clients", "must be a whole number"),
    ({"num_clients": 3}, "num_clients", "too few for all 10 classes with classes_per_client=2"),
    ({**DIRICHLET, "classes_per_client": 2}, "classes_per_client", "applies only with .*=class"),
    ({"partition": "natural", "num_clients": 5}, "num_clients", "applies only with"),
    ({"dataset": "femnist", "partition": "natural"}, "data_dir", "is missing"),
    ({"input_normalization": "x"}, "input_normalization", "choose one of dataset, imagenet, none"),
    ({"projection_dim": -1}, "projection_dim", "must be at least 0"),
    ({"rounds": 0}, "rounds", "must be at least 1"),
    ({"rounds": 2.5}, "rounds", "must be a whole number"),
    ({"clients_per_round": -1}, "clients_per_round", "must be at least 0"),
    ({"clients_per_round": 11}, "clients_per_round", "there are only num_clients=10 clients"),
    ({"local_epochs": 0}, "local_epochs", "must be at least 1"),
    ({"batch_size": 0}, "batch_size", "must be at least 1"),
    ({"client_learning_rate": 0.0}, "client_learning_rate", "must be greater than 0"),
    ({"client_learning_rate": float("nan")}, "client_learning_rate", "must be a finite"),
    ({"client_momentum": 1.0}, "client_momentum", "must be at most 0.9999"),
    ({"client_momentum": -0.1}, "client_momentum", "must be at least 0"),
    ({"client_weight_decay": -1.0}, "client_weight_decay", "must be at least 0"),
    ({"client_clip_norm": -1.0}, "client_clip_norm", "must be at least 0"),
    ({"eval_every": 0}, "eval_every", "must be at least 1"),
    ({"personal_eval_every": -1}, "personal_eval_every", "must be at least 0"),
    *(({name: -1}, name, "must be at least 0") for name in ("seed", *SEEDS)),
    (
        {"metrics": "median"},
        "metrics",
        "choose one of balanced, macro_f1, weighted_f1, worst_class",
    ),
    ({"metrics": "balanced,balanced"}, "metrics", "name each once"),
    ({"early_stopping_patience": 1}, "early_stopping_patience", "needs held-out samples"),
    ({"dp_clip": 1.0}, "dp_clip", "^applies only with aggregator=dp$"),
    (
        {"aggregator": "secure", "compressed_bits": 4},
        "compressed_bits",
        "^applies only with aggregator=compressed$",
    ),
    ({"speed": 1}, "speed", "there is no such setting"),
]


@pytest.mark.parametrize(("values", "setting", "reason"), REFUSED)
def test_refusals(values, setting, reason):
    with refuses(setting, reason) as caught:
        ExperimentConfig.from_settings(**values).check_data()
    if setting in values:
        assert caught.value.value is values[setting]


def test_too_few_features_name_a_width_that_suffices():
    config = ExperimentConfig.from_settings(algorithm="fedgela", projection_dim=8)
    config.check_features(10, 10)
    with refuses("projection_dim", "fedgela needs at least 10 .* gives 8; set projection_dim=84"):
        config.check_features(8, 10)


def runtime_options(**values):
    return flatten(build(RunOptions, values).compute.runtime)


def test_runtime_options():
    of_gpus = {"clients_per_gpu": 1, "gpu_memory": None}
    assert runtime_options() == {"client_parallelism": None, "devices": None, **of_gpus}
    assert runtime_options(devices="CPU:0,CPU:1", client_parallelism=2) == {
        "client_parallelism": 2,
        "devices": "CPU:0,CPU:1",
        **of_gpus,
    }
    assert runtime_options(runtime="tff") == {"insecure": False}
    chosen = RunOptions(compute=ComputeOptions(runtime=runtime.create("tff")))
    assert chosen == build(RunOptions, {"runtime": "tff"})
    assert build(RunOptions, flatten(chosen)) == chosen


@pytest.mark.parametrize(
    ("values", "setting", "reason"),
    [
        ({"runtime": "gpu"}, "runtime", "choose one of inprocess, ray, tff"),
        ({"ray_address": "a:1"}, "ray_address", "applies only with runtime=ray"),
        ({"runtime": "ray", "ray_address": "a"}, "ray_address", "must be host:port, or auto"),
        ({"runtime": "ray", "ray_actors": 0}, "ray_actors", "must be at least 1"),
        ({"runtime": "ray", "ray_cpus": 0}, "ray_cpus", "must be at least 1"),
        ({"runtime": "ray", "ray_gpus": -1.0}, "ray_gpus", "must be at least 0"),
        ({"runtime": "ray", "ray_gpus": 1.5}, "ray_gpus", "a fraction or a whole number"),
        ({"runtime": "ray", "data_placement": "x"}, "data_placement", "one of driver, local"),
        ({"runtime": "tff", "devices": "CPU:0"}, "devices", "applies only with runtime=inprocess"),
        (
            {"runtime": "tff", "client_parallelism": 2},
            "client_parallelism",
            "applies only with runtime=inprocess",
        ),
        ({"client_parallelism": 0}, "client_parallelism", "must be at least 1"),
        ({"runtime": "ray", "ray_timeout": 0.0}, "ray_timeout", "must be greater than 0"),
        ({"eval_batch_size": 0}, "eval_batch_size", "must be at least 1"),
        ({"checkpoint_every": 0}, "checkpoint_every", "must be at least 1"),
        ({"keep_checkpoints": 0}, "keep_checkpoints", "must be at least 1"),
        ({"client_store": "cloud"}, "client_store", "choose one of memory, disk"),
        ({"progress": "no"}, "progress", "must be true or false"),
    ],
)
def test_refusals_of_run_options(values, setting, reason):
    with refuses(setting, reason):
        build(RunOptions, values)

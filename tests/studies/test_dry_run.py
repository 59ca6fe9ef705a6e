"""Runs that are checked and described without data."""

import json

import pytest

from tests.data.refusals import refuses
from tests.studies.fake_sweep import ALL, points
from tff_pcdd.studies import Halving, dry_run
from tff_pcdd.training import ExperimentConfig, RunOptions, run_experiment

# Trainable parameters of a ResNet18 for color images, and of 84 linear features behind its 512.
RESNET18, PROJECTION = 11_168_832, 512 * 84 + 84


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            {"dataset": "cifar10", "model": "resnet18", "algorithm": "fedgela", "seed": 3},
            f"fedgela seed 3: cifar10, P10C2, 30 rounds, resnet18, {RESNET18 + PROJECTION:,} "
            "parameters before the head",
        ),
        (
            {
                "dataset": "fashion_mnist",
                "model": "resnet18",
                "partition": "dirichlet",
                "imbalance_factor": 100,
            },
            # One input channel in place of three, under 64 filters of 3×3.
            "fedavg seed 0: fashion_mnist, Dirichlet(0.5), 10 clients, imbalance factor 100, "
            f"30 rounds, resnet18, {RESNET18 - 2 * 9 * 64:,} parameters before the head",
        ),
        (
            {
                "dataset": "cifar10",
                "model": "resnet18",
                "rounds": 4,
                "local_epochs": 2,
                "client_optimizer": "adam",
                "client_learning_rate": 0.01,
                "schedule": "cosine",
                "server_optimizer": "fedadam",
                "server_learning_rate": 0.01,
                "straggler_share": 0.5,
            },
            # 0.01 is the default of the server optimizer, but not of Adam.
            f"fedavg seed 0: cifar10, P10C2, 4 rounds, resnet18, {RESNET18:,} parameters before "
            "the head, local_epochs=2, client_optimizer=adam, client_learning_rate=0.01, "
            "schedule=cosine, straggler_share=0.5, server_optimizer=fedadam",
        ),
        (
            {
                "dataset": "cifar10",
                "model": "resnet18",
                "normalization": "group",
                "bn": "personal",
                "precision": "bfloat16",
                "batch_size": 8,
            },
            # Group normalization has as many trainable parameters as batch normalization.
            f"fedavg seed 0: cifar10, P10C2, 30 rounds, resnet18, {RESNET18:,} parameters before "
            "the head, normalization=group, bn=personal, precision=bfloat16, batch_size=8",
        ),
    ],
    ids=["projection", "grey images", "training", "model"],
)
def test_a_run_in_one_line(settings, line):
    assert (
        dry_run.describe(ExperimentConfig.from_settings(data_dir="/not/there", **settings)) == line
    )


def test_text():
    for rounds, shown in ((7, "7 rounds"), (1, "1 round")):
        config = ExperimentConfig.from_settings(
            dataset="shakespeare",
            data_dir="/not/there",
            partition="natural",
            model="lstm",
            rounds=rounds,
        )
        line = dry_run.describe(config)
        assert line.startswith(f"fedavg seed 0: shakespeare, {shown}, lstm, ")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("settings", "setting", "reason"),
    [
        ({"model": "lstm"}, "model", "needs text; the data are images of 8×8×1"),
        (
            {
                "dataset": "cifar100",
                "data_dir": "/not/there",
                "partition": "iid",
                "algorithm": "fedloge",
            },
            "projection_dim",
            "^fedloge needs at least 100 features for 100 classes, "
            "model=simple_cnn gives 84; set projection_dim=512$",
        ),
        (
            {
                "dataset": "cifar10",
                "data_dir": "/not/there",
                "model": "efficientnet_b0",
                "pretrained_weights": "/no/file",
            },
            "pretrained_weights",
            "",
        ),
        ({"model": "resnet8", "aggregator": "dp"}, "aggregator", "choose normalization=group"),
        (
            {"algorithm": "fedbn", "model": "resnet8", "aggregator": "dp"},
            "aggregator",
            "choose normalization=group",
        ),
        (
            {"aggregator": "dp", "dp_clip": 0.0, "clients_per_round": 4},
            "dp_noise_multiplier",
            "4 clients in a round",
        ),
    ],
    ids=["model", "features", "weights", "statistics", "statistics of clients", "noise"],
)
def test_what_the_backbone_refuses(settings, setting, reason):
    config = ExperimentConfig.from_settings(**settings)
    with refuses(setting, reason) as caught:
        dry_run.describe(config)
    if setting in settings:
        assert caught.value.value == settings[setting]


def test_all_refused_methods_are_named(tmp_path):
    """By what their clients send, which only the network can tell."""
    configs = [
        ExperimentConfig.from_settings(algorithm=name, aggregator="secure", seed=seed)
        for name in ("fedavg", "fedproto", "fedmr")
        for seed in (0, 1)
    ]
    with refuses(
        "aggregator",
        r"^cannot be used with fedproto \(clients of fedproto send no weights; choose [^)]*\); "
        r"aggregator=secure cannot be used with fedmr \(clients of fedmr also send counts",
    ):
        dry_run.compare(configs, tmp_path)


def test_several_runs_are_counted(tmp_path):
    """3 seeds with 4 rounds, and 2 with 5, which early stopping may make fewer."""
    runs = [ExperimentConfig.from_settings(rounds=4, seed=seed) for seed in (0, 1, 2)]
    patient = {"rounds": 5, "validation_fraction": 0.2, "early_stopping_patience": 1}
    runs += [
        ExperimentConfig.from_settings(algorithm="fedprox", seed=seed, **patient) for seed in (0, 1)
    ]
    assert dry_run.compare(runs[:3], tmp_path).splitlines()[3:] == ["3 runs; 12 rounds"]
    assert dry_run.compare(runs, tmp_path).splitlines()[5:] == ["5 runs; at most 22 rounds"]


def test_what_is_done_is_not_counted(tmp_path):
    """Of 3 runs with 4 rounds, one has finished, and one has its checkpoint of round 3: 5 left."""
    base = {"dataset": "digits", "max_train_samples": 60, "num_clients": 2, "model": "linear"}
    base |= {"classes_per_client": 5, "local_epochs": 1, "personal_eval_every": 0}
    runs = [ExperimentConfig.from_settings(rounds=4, seed=seed, **base) for seed in (0, 1, 2)]
    folders = [tmp_path / "fedavg" / f"seed_{seed}" for seed in (0, 1, 2)]
    quiet = RunOptions(progress=False, tensorboard=False)
    run_experiment(runs[0], folders[0], quiet)
    run_experiment(runs[1], folders[1], quiet, pause_after=3)
    anew = [dry_run.describe(config) for config in runs]
    expected = [f"{anew[0]}; finished", f"{anew[1]}; continues after round 3", anew[2]]
    for config, folder, line in zip(runs, folders, expected, strict=True):
        assert dry_run.train(config, folder) == line
        assert dry_run.train(config, folder, overwrite=True) == dry_run.describe(config)
    lines = dry_run.compare(runs, tmp_path).splitlines()
    assert lines == [*expected, "3 runs, of which 1 is finished; 5 rounds left"]
    lines = dry_run.compare(runs, tmp_path, overwrite=True).splitlines()
    assert lines == [*anew, "3 runs; 12 rounds"]
    # With more rounds, the first run is not finished any more.
    longer = ExperimentConfig.from_settings(rounds=6, seed=0, **base)
    assert dry_run.train(longer, folders[0]).endswith("; continues after round 4")


def test_directories(tmp_path):
    """One that holds another run is refused; where there is none, none is made."""
    one, other = ExperimentConfig.from_settings(), ExperimentConfig.from_settings(rounds=31)
    assert len(dry_run.compare([one], tmp_path / "new").splitlines()) == 1
    assert not list(tmp_path.iterdir())
    run = tmp_path / "comparison" / "fedavg" / "seed_0"
    run.mkdir(parents=True)
    (run / "config.json").write_text(json.dumps(other.to_settings()))
    for call in (
        lambda **options: dry_run.train(one, run, **options),
        lambda **options: dry_run.compare([one], tmp_path / "comparison", **options),
    ):
        with refuses("output_dir", r"different settings: rounds \(there 31, here 30\)"):
            call()
        assert call(overwrite=True) == dry_run.describe(one)
    assert (run / "config.json").exists()


# FedAvg has 2 points and FedProx 6, with 8 rounds each; the two methods have 3 final runs each.
FINAL = 2 * 3 * 8


@pytest.mark.parametrize(
    ("further", "options", "stops", "rounds"),
    [
        # Both rates of FedAvg go on; with each of FedProx, two points and then one.
        ({}, {}, True, (2 + 6) * 2 + (2 + 4) * 2 + (2 + 2) * 4),
        # Of all points, half go on: 1, 1 of FedAvg and 3, 2 of FedProx.
        ({}, {"halving": ALL}, True, (2 + 6) * 2 + (1 + 3) * 2 + (1 + 2) * 4),
        # A third goes on after round 4: 1 and 2.
        ({}, {"halving": Halving((0.5,), 3.0, "all")}, True, (2 + 6) * 4 + (1 + 2) * 4),
        ({}, {"halving": Halving(())}, False, (2 + 6) * 8),
        # Nothing is known after round 2, so all go on, and half of them after round 4.
        ({"eval_every": 3}, {"halving": ALL}, True, (2 + 6) * 4 + (1 + 3) * 4),
        # Personal models may be evaluated for the first time after the last round.
        ({}, {"criterion": "va_personal"}, True, (2 + 6) * 8),
    ],
    ids=["default", "all", "reduction", "no rungs", "measured late", "personal"],
)
def test_a_sweep_over_methods_ends_with_its_size(further, options, stops, rounds, tmp_path):
    *lines, last = dry_run.sweep_methods(points(**further), tmp_path, **options).splitlines()
    assert len(lines) == 2 + 6
    early = ", some of which stop early" if stops else ""
    assert last == (
        f"8 settings with seed 0{early}, then 6 final runs with seeds 1, 2, 3; "
        f"at most {rounds + FINAL} rounds"
    )


def test_the_size_of_a_sweep_with_several_seeds_and_of_a_single_run(tmp_path):
    twice = {
        name: [point._replace(configs=point.finals[:2], finals=point.configs) for point in grid]
        for name, grid in points().items()
    }
    last = dry_run.sweep_methods(twice, tmp_path, halving=Halving(())).splitlines()[-1]
    assert last == (
        f"8 settings with seeds 1, 2, then 2 final runs with seed 0; at most {8 * 2 * 8 + 16} "
        "rounds"
    )
    point, _ = points()["fedavg"]
    for finals, text in ((1, ", then 1 final run with seed 1; at most 16"), (0, "; at most 8")):
        one = {"fedavg": [point._replace(finals=point.finals[:finals])]}
        last = dry_run.sweep_methods(one, tmp_path, halving=Halving(())).splitlines()[-1]
        assert last == f"1 setting with seed 0{text} rounds"


def test_the_size_for_own_data_is_not_guessed(tmp_path):
    """The shape of the inputs is known once they are read."""
    config = ExperimentConfig.from_settings(
        dataset="npz", data_dir=str(tmp_path / "own.npz"), partition="natural"
    )
    line = dry_run.describe(config)
    assert "simple_cnn, for inputs whose shape is known once the data are read" in line
    assert "parameters" not in line

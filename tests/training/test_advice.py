"""Warnings about settings with which a method is known to fail."""

import pytest

from tff_pcdd import methods
from tff_pcdd.experiment import planning
from tff_pcdd.federated import SGD, client_optimizers
from tff_pcdd.studies import dry_run
from tff_pcdd.training import ExperimentConfig, run


@pytest.fixture
def warned(caplog):
    """What has been warned of so far; `messages` has the texts."""
    planning._warn.cache_clear()
    yield caplog
    planning._warn.cache_clear()


def feddc(**settings):
    return ExperimentConfig.from_settings(algorithm="feddc", **settings)


def is_about_momentum(text):
    return "client_momentum=0.9" in text and text.endswith(
        "client_momentum=0 with client_learning_rate=0.1"
    )


def test_fedpac_advises_against_the_step_size_of_sgd():
    adam = client_optimizers.create("adam")
    assert methods.create("fedpac").advice(adam) == (
        "fedpac with client_optimizer=adam trains heads with fedpac_head_learning_rate=0.1, a step "
        "size of its authors for SGD; choose one near client_learning_rate=0.001"
    )
    assert methods.create("fedpac", head_learning_rate=0.005).advice(adam) is None


def test_feddc_advises_against_momentum():
    method = methods.create("feddc")
    assert is_about_momentum(method.advice(SGD()))
    for momentum in (0.0, 0.5):
        assert method.advice(SGD(momentum=momentum)) is None
    # Without the correction it is FedDyn, which learns.
    assert methods.create("feddc", control="none").advice(SGD()) is None
    for name in set(methods.names()) - {"feddc", "feddc_prototypes"}:
        assert methods.create(name).advice(SGD()) is None


def test_fedgela_advises_against_its_published_scale_without_normalization():
    """On digits, P10C2, GA falls from 91.7 at scale 1 to 60.9 at 1e5 (docs/reproduction.md)."""

    def advice(model, **settings):
        config = ExperimentConfig.from_settings(algorithm="fedgela", model=model, **settings)
        return config.method.advice_on_backbone(config.model.backbone.has_normalization)

    for model in ("simple_cnn", "mlp", "lstm"):
        assert "fedgela_scale=100000 with a network that has no" in advice(model, fedgela_scale=1e5)
        assert advice(model) is None
    for model in ("simple_cnn_bn", "resnet18"):
        assert advice(model, fedgela_scale=1e5) is None
    assert advice("simple_cnn", fedgela_scale=1e5, fedgela_features="bn") is None
    planning.advise(
        ExperimentConfig.from_settings(algorithm="fedge", fedge_scale=1e5), (said := []).append
    )
    assert len(said) == 1
    assert said[0].startswith("fedge_scale=100000 ")


@pytest.mark.parametrize(
    ("model", "projection", "width", "factor", "weight"),
    [
        # 84² = 7,056; 512² = 262,144; 64² = 4,096; 10² = 100.
        ("resnet18", 0, 512, "37", "2.7e-06"),
        ("simple_cnn", 64, 64, "0.58", "0.00017"),
        ("mlp", 10, 10, "0.014", "0.0071"),
    ],
)
def test_fedmr_names_the_weight_that_suits_the_features(
    model, projection, width, factor, weight, warned
):
    settings = {
        "algorithm": "fedmr",
        "dataset": "cifar10",
        "data_dir": "there",
        "model": model,
        "projection_dim": projection,
    }
    planning.check(ExperimentConfig.from_settings(**settings))
    assert warned.messages == [
        f"fedmr_mu1=0.0001 is for 84 features: with {width}, the intra-class term is {factor} "
        f"times as strong; take fedmr_mu1={weight} or projection_dim=84"
    ]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"model": "resnet18"},
        {"model": "simple_cnn", "projection_dim": 0},  # has 84 features
        {"model": "resnet18", "projection_dim": 0, "fedmr_mu1": 1e-5},
        {"model": "resnet18", "projection_dim": 0, "fedmr_mu1": 0},
        {"model": "resnet18", "projection_dim": 0, "fedmr_form": "code"},
        {"model": "resnet18", "projection_dim": 0, "algorithm": "fedavg"},
    ],
)
def test_fedmr_says_nothing_where_the_weight_suits_or_was_chosen(settings, warned):
    own = {"algorithm": "fedmr", "dataset": "cifar10", "data_dir": "there", **settings}
    planning.check(ExperimentConfig.from_settings(**own))
    assert not warned.messages


def test_a_dry_run_warns(warned, tmp_path):
    dry_run.train(feddc(), tmp_path / "out")
    (text,) = warned.messages
    assert is_about_momentum(text)


def test_a_comparison_warns_once(warned, tmp_path):
    configs = [feddc(seed=seed) for seed in (0, 1)] + [ExperimentConfig()]
    dry_run.compare(configs, tmp_path / "out")
    (text,) = warned.messages
    assert is_about_momentum(text)


def test_a_run_warns_before_it_starts(warned, tmp_path, monkeypatch):
    class Started(Exception):
        pass

    def start(*arguments, **options):
        raise Started

    monkeypatch.setattr(run, "Simulation", start)
    for config in (feddc(client_momentum=0.0), feddc()):
        with pytest.raises(Started):
            run.Run(config, tmp_path)
    (text,) = warned.messages
    assert is_about_momentum(text)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"warmup_rounds": 4}, "warmup_rounds=4: the whole step size is not reached in 4 rounds"),
        (
            {"warmup_rounds": 1, "rounds": 1},
            "warmup_rounds=1: the whole step size is not reached in 1 round",
        ),
        (
            {"schedule": "step", "schedule_milestones": "2,4,9"},
            "schedule_milestones=2,4,9: the step size does not drop after round 4, because "
            "rounds=4",
        ),
        (
            {"schedule": "step", "schedule_milestones": "0.5,0.9"},
            "schedule_milestones=0.5,0.9: the step size does not drop after round 4, because "
            "rounds=4",
        ),
        (
            {"min_local_epochs": 3, "local_epochs": 3},
            "min_local_epochs=3: has no effect, because local_epochs is 3 too; all clients train "
            "for as many epochs",
        ),
        (
            {"bn": "personal", "model": "simple_cnn"},
            "bn=personal: has no effect, because the network has no batch normalization",
        ),
        (
            {"bn": "personal", "model": "resnet8", "normalization": "group"},
            "bn=personal: has no effect, because the network has no batch normalization",
        ),
        (
            {"bn": "personal", "model": "resnet8", "algorithm": "local"},
            "bn=personal: has no effect, because local has no network that is averaged",
        ),
        *(
            (
                {"algorithm": name, "model": "linear"},
                f"{name}: clients share nothing, because model=linear has no parameters, and train "
                "alone, as with algorithm=local; set projection_dim above 0",
            )
            for name in ("fedper", "fedrep")
        ),
        *(
            (
                {"client_weighting": weighting, "algorithm": name},
                f"client_weighting={weighting}: has no effect, because {name} averages no networks",
            )
            for name, weighting in (
                ("local", "uniform"),
                ("central", "samples"),
                ("fedproto", "uniform"),
            )
        ),
    ],
)
def test_settings_without_effect_are_warned_of_once(warned, settings, expected):
    for seed in (0, 1):
        planning.check(ExperimentConfig.from_settings(**{"rounds": 4, "seed": seed, **settings}))
    assert warned.messages == [expected]


@pytest.mark.parametrize(
    "settings",
    [
        {"warmup_rounds": 3},
        {"schedule": "step", "schedule_milestones": "2,3"},
        {"schedule": "step"},
        {"min_local_epochs": 2, "local_epochs": 3},
        {"bn": "personal", "model": "resnet8"},
        {"bn": "personal", "model": "resnet8", "algorithm": "fedper"},
        {"client_weighting": "uniform"},
        {"client_weighting": "uniform", "algorithm": "fedpac"},
        {"algorithm": "fedper", "model": "linear", "projection_dim": 5},
        # Their clients send prototypes, or rows of heads.
        {"algorithm": "fedproto", "model": "linear"},
        {"algorithm": "fedpac", "model": "linear"},
        {"algorithm": "local", "model": "linear"},
        {"algorithm": "local"},
        {"algorithm": "central"},
    ],
)
def test_settings_with_an_effect_are_not(warned, settings):
    planning.check(ExperimentConfig.from_settings(**{"rounds": 4, **settings}))
    assert not warned.messages


@pytest.mark.parametrize("settings", [{"client_momentum": 0.0}, {"feddc_control": "none"}])
def test_settings_that_work_give_no_warning(warned, settings):
    planning.check(feddc(**settings))
    assert not warned.messages

"""Defaults and bounds of every method's options, against a table kept here.

Defaults are those of the papers or their authors' code, except where the module of the method says
otherwise. A change of a default changes the results of its users, so it also has to be made here.
"""

import dataclasses

import pytest

from tff_pcdd import methods
from tff_pcdd.errors import SettingError
from tff_pcdd.methods.head_calibration import registry as calibrations

# Option: default, values at the edge of what is accepted, values just beyond it.
OPTIONS = {
    "apfl.alpha": (0.5, [0, 1], [-1e-6, 1.01]),
    "apfl.adaptive": (True, [False], []),
    "ditto.pull": (1.0, [0], [-1e-6]),
    "fedala.layers": (1, [0], [-1]),
    "fedala.share": (0.8, [1e-6, 1], [0, 1.01]),
    "fedala.weight_learning_rate": (1.0, [1e-6], [0]),
    "fedala.weight_epochs": (1, [1], [0]),
    "fedavg.realign": (False, [True], []),
    "fedbabu.finetune": ("full", ["head", "body"], ["none"]),
    "feddc.alpha": (0.01, [1e-6], [0]),
    "feddc.control": ("code", ["paper", "none"], ["scaffold"]),
    "feddecorr.beta": (0.1, [0], [-1e-6]),
    "feddecorr.form": ("code", ["paper"], ["frobenius"]),
    "feddyn.alpha": (0.01, [1e-6], [0]),
    "fedetf.temperature": (1.0, [1e-6], [0]),
    "fedetf.finetune_cycles": (1, [0], [-1]),
    "fedetf.finetune_epochs": (3, [0], [-1]),
    "fedge.scale": (1.0, [1e-6], [0]),
    "fedge.features": ("l2", ["bn", "bn_l2"], ["none"]),
    "fedgela.scale": (1.0, [1e-6], [0]),
    "fedgela.features": ("l2", ["bn", "bn_l2"], ["none"]),
    "fedgela.adaptation": ("linear", ["sqrt", "exp", "relative", "none"], ["log"]),
    "fedgela.masked": (False, [True], []),
    "fedgela.classifier": ("etf", ["trainable"], ["linear"]),
    "fedgen.generative": (10.0, [0], [-1e-6]),
    "fedgen.distillation": (10.0, [0], [-1e-6]),
    "fedgen.noise_dim": (64, [1], [0]),
    "fedgen.hidden_dim": (256, [1], [0]),
    "fedgen.output": ("relu", ["linear"], ["tanh"]),
    "fedgen.generator_steps": (50, [1], [0]),
    "fedgen.generator_batch": (32, [2], [1]),
    "fedgen.generator_learning_rate": (3e-4, [1e-6], [0]),
    "fedlc.tau": (1.0, [0], [-1e-6]),
    "fedlc.denominator": ("all", ["others"], ["own"]),
    "fedloge.norm": (2.0, [1e-6], [0]),
    "fedloge.sparsity": (0.6, [0, 0.99], [-1e-6, 0.995]),
    "fedloge.initialization": (
        "etf",
        ["xavier", "gaussian", "uniform", "orthogonal", "kaiming"],
        ["zeros"],
    ),
    "fedloge.frame_loss": ("cross_entropy", ["dot_regression"], ["mse"]),
    "fedloge.global_head": ("psi", ["frame"], ["phi"]),
    "fedloge.local_lengths": ("phi", ["counts"], ["psi"]),
    "fedloge.scale": (1.7, [1e-6], [0]),
    "fedloge.realign": (True, [False], []),
    "fedloge.realign_bias": ("keep", ["drop"], ["scale"]),
    "fedloge.personal_head": (
        "realigned",
        ["phi+realigned", "realigned+psi", "phi+psi"],
        ["phi"],
    ),
    "fedloge.finetune_epochs": (0, [1], [-1]),
    "fedmr.mu1": (1e-4, [0], [-1e-6]),
    "fedmr.mu2": (1e-4, [0], [-1e-6]),
    "fedmr.form": ("frobenius", ["offdiagonal", "code"], ["paper"]),
    "fedmr.reading": ("all", ["local", "missing", "nomargin"], ["none"]),
    "fedmr.normalize": (False, [True], []),
    "fedmr.inter_samples": (0, [1], [-1]),
    "fedmr.warmup_rounds": (0, [1], [-1]),
    "fedmr.prototype_share": (1.0, [0, 1], [-1e-6, 1.01]),
    "fedntd.beta": (1.0, [0], [-1e-6]),
    "fedntd.temperature": (1.0, [1e-6], [0]),
    "fedpac.distance_weight": (1.0, [0], [-1e-6]),
    "fedpac.collaborate": (True, [False], []),
    "fedpac.head_epochs": (1, [2], [0]),
    "fedpac.head_learning_rate": (0.1, [1e-6], [0]),
    "fedproc.contrast_weight": (1.0, [0, 1], [-1e-6, 1.01]),
    "fedproc.temperature": (0.5, [1e-6], [0]),
    "fedproc.projection_width": (256, [0], [-1]),
    "fedproto.distance_weight": (1.0, [0], [-1e-6]),
    "fedproto.candidates": ("own", ["all"], ["none"]),
    "fedproto.predict": ("prototype", ["head"], ["both"]),
    "fedprox.mu": (0.01, [0], [-1e-6]),
    "fedrela.share": (0.05, [0, 1], [-1e-6, 1.01]),
    "fedrela.start": (0.8, [0, 1], [-1e-6, 1.01]),
    "fedrela.rate_factor": (0.1, [1e-6], [0]),
    "fedrep.body_epochs": (1, [0], [-1]),
    "fedrod.gamma": (1.0, [0], [-1e-6]),
    "fedrs.alpha": (0.5, [0, 1], [-1e-6, 1.01]),
    "fedrs.graded": (False, [True], []),
    "fedsol.rho": (1.0, [0], [-1e-6]),
    "fedsol.temperature": (3.0, [1e-6], [0]),
    "fedsol.perturb": ("all", ["head"], ["body"]),
    "fedvls.distillation": (0.1, [0], [-1e-6]),
    "fedvls.suppression": (0.005, [0], [-1e-6]),
    "fedyoyo.distillation": (4.0, [0], [-1e-6]),
    "fedyoyo.tau": (1.5, [0], [-1e-6]),
    "fedyoyo.gamma": (0.1, [0, 1], [-1e-6, 1.01]),
    "fedyoyo.temperature": (1.5, [1e-6], [0]),
    "fedyoyo.warmup": (50, [1], [0]),
    "fedyoyo.strong_view": (True, [False], []),
    "logitadjust.tau": (1.0, [0], [-1e-6]),
    "moon.mu": (5.0, [0], [-1e-6]),
    "moon.temperature": (0.5, [1e-6], [0]),
    "moon.projection_width": (256, [0], [-1]),
    "pfedme.pull": (15.0, [1e-6, 39.9], [0]),
    "pfedme.inner_steps": (5, [1], [0]),
    "pfedme.inner_learning_rate": (0.05, [1e-6, 0.13], [0, 0.134]),
    "pfedme.beta": (1.0, [1e-6], [0]),
    "ratioloss.alpha": (1.0, [1e-6], [0]),
    "ratioloss.beta": (0.1, [0], [-1e-6]),
    "ratioloss.cap": (5000.0, [1e-6], [0]),
    "ratioloss.auxiliary": (32, [1], [0]),
    "scaffold.control": (True, [False], []),
    "scaffold.server_step": (1.0, [1e-6], [0]),
}

# The same for head calibrations.
CALIBRATIONS = {
    "ccvr.epochs": (10, [0], [-1]),
    "ccvr.learning_rate": (0.01, [1e-6], [0]),
    "ccvr.virtual_features": (500, [1], [0]),
    "creff.epochs": (300, [0], [-1]),
    "creff.learning_rate": (0.01, [1e-6], [0]),
    "creff.features": (100, [1], [0]),
    "creff.matching_steps": (100, [1], [0]),
    "creff.matching_learning_rate": (0.1, [1e-6], [0]),
    "fednpc.epochs": (9, [0], [-1]),
    "fednpc.learning_rate": (0.1, [1e-6], [0]),
    "fednpc.features": (10000, [1], [0]),
}

# Methods aided by prototypes have the options of the method and one more.
AIDED = ["feddc", "feddyn", "fednova", "fedprox", "moon"]
for _name in AIDED:
    OPTIONS |= {
        option.replace(f"{_name}.", f"{_name}_prototypes."): row
        for option, row in OPTIONS.items()
        if option.startswith(f"{_name}.")
    }
    OPTIONS[f"{_name}_prototypes.mu2"] = (1e-4, [0], [-1e-6])

# Width of the layer behind the backbone; all others have none.
PROJECTIONS = {"fedge": 84, "fedgela": 84, "fedmr": 84}
BASELINES = {"local", "central"}
WITHOUT_GLOBAL_MODEL = {"fedpac", "fedper", "fedproto", "fedrep", "local"}


TABLES = [(methods.registry, OPTIONS), (calibrations, CALIBRATIONS)]


@pytest.mark.parametrize(
    ("registry", "option", "row"),
    [(registry, *item) for registry, table in TABLES for item in table.items()],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_default_and_bounds(registry, option, row):
    default, accepted, refused = row
    component, name = option.split(".")
    actual = getattr(registry.create(component), name)
    assert actual == default and type(actual) is type(default)
    for value in accepted:
        assert getattr(registry.create(component, **{name: value}), name) == value
    for value in refused:
        with pytest.raises(SettingError) as caught:
            registry.create(component, **{name: value})
        aided = "prototypes" if name == "mu2" and component != "fedmr" else None
        assert caught.value.setting == f"{aided or component.removesuffix('_prototypes')}_{name}"


@pytest.mark.parametrize(("registry", "table"), TABLES, ids=["methods", "calibrations"])
def test_every_option_is_in_the_table(registry, table):
    found = {
        f"{name}.{field.name}"
        for name, cls in registry.classes().items()
        for field in dataclasses.fields(cls)
        if field.name != "client_weighting"  # an option of every method
    }
    assert found == set(table)


@pytest.mark.parametrize("name", methods.names())
def test_what_a_method_states_about_itself(name):
    method = methods.create(name)
    assert method.projection_dim == PROJECTIONS.get(name, 0)
    assert method.has_global_model == (name not in WITHOUT_GLOBAL_MODEL)
    assert method.baseline == (name in BASELINES)
    assert method.pools_samples == (name == "central")
    assert method.has_schedule == (name in ("fedproc", "fedrela"))

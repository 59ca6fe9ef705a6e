"""Methods by name: one's own besides those of the package."""

import dataclasses
import functools

import pytest

from tests.data.refusals import refuses
from tff_pcdd import methods
from tff_pcdd.settings import describe, option


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(methods.registry, "_classes", methods.registry.classes())


def define(default):
    """What a notebook's cell does, each time it runs."""

    @methods.register
    @dataclasses.dataclass(frozen=True)
    class Mine(methods.Method):
        name = "mine"
        strength: float = option(default, "A strength.", minimum=0)

    return Mine


def test_a_cell_that_defines_a_method_can_run_again():
    define(1.0)
    again = define(2.0)
    assert methods.get("mine") is again
    assert methods.create("mine").strength == 2.0


def test_options_are_settings_with_the_name_of_the_method():
    shared, setting = describe(define(1.0))
    assert shared.name == "client_weighting"
    assert (setting.name, setting.default) == ("mine_strength", 1.0)
    with refuses("mine_strength", "at least 0"):
        methods.create("mine", strength=-1.0)


def test_the_name_of_another_class_is_refused():
    @dataclasses.dataclass(frozen=True)
    class Other(methods.Method):
        name = "fedavg"

    with pytest.raises(ValueError, match=r"fedavg: is already registered by .*FedAvg"):
        methods.register(Other)


def test_a_class_without_a_name_is_refused():
    class Nameless(methods.Method):
        pass

    with pytest.raises(ValueError, match="Nameless needs a class attribute `name`"):
        methods.register(Nameless)


def test_an_option_without_a_default_is_refused():
    @dataclasses.dataclass(frozen=True)
    class Bare(methods.Method):
        name = "bare"
        mu: float

    with refuses("algorithm", "'mu' of Bare needs a default, such as `mu: float = option", "bare"):
        methods.register(Bare)


@pytest.mark.parametrize(
    ("hook", "value", "reason"),
    [
        (
            "loss",
            lambda self, net, batch: None,
            r"loss has to have the parameters \(self, net, batch, client\)",
        ),
        ("weight", lambda client: None, r"parameters \(self, client\)"),
        ("weight", lambda self, client, more: None, r"parameters \(self, client\)"),
        ("loss", option(0.1, "A strength."), "loss is a hook; rename the option"),
        (
            "personal_logit",
            lambda self, net, x, client: None,
            r"there is no hook personal_logit; did you mean personal_logits\?",
        ),
        ("global_logit", lambda self, net, x: None, "did you mean global_logits"),
    ],
)
def test_hooks_that_cannot_be_called_are_refused(hook, value, reason):
    with refuses("algorithm", f"^Mine: .*{reason}", "mine"):
        type("Mine", (methods.Method,), {"name": "mine", hook: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weights", lambda self, net: None),
        ("losses", lambda self, net, batch, client: None),
        ("loss2", lambda self, net, batch, client: None),
        ("loss", lambda self, *arguments: None),
        ("loss", lambda self, network, samples, who, more=1: None),
        ("embed", staticmethod(lambda net, x, training: None)),
        ("weight", functools.partialmethod(lambda self, name, client: None, "x")),
        ("fixed_head", property(lambda self: None)),
    ],
)
def test_helpers_and_other_parameters_are_not(name, value):
    type("Mine", (methods.Method,), {"name": "mine", name: value})


def test_unknown_names_and_options_are_refused():
    with refuses("algorithm", "fedavg, fedbabu", "fedbest"):
        methods.get("fedbest")
    with refuses("fedprox_nu", "only client_weighting, mu"):
        methods.create("fedprox", nu=1.0)

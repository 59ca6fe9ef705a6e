"""Methods by name: one's own besides those of the package."""

import dataclasses

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


def test_unknown_names_and_options_are_refused():
    with refuses("algorithm", "fedavg, fedbabu", "fedbest"):
        methods.get("fedbest")
    with refuses("fedprox_nu", "only client_weighting, mu"):
        methods.create("fedprox", nu=1.0)

"""Methods by name: one's own beside those of the package."""

import dataclasses

import pytest

from tff_pcdd import methods
from tff_pcdd.methods import method


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(method, "_REGISTRY", dict(method._REGISTRY))


def define(default):
    """What a notebook's cell does, each time it runs."""

    @methods.register
    @dataclasses.dataclass(frozen=True)
    class Mine(methods.Method):
        name = "mine"
        strength: float = default

    return Mine


def test_a_cell_that_defines_a_method_can_run_again():
    define(1.0)
    again = define(2.0)
    assert methods.get("mine") is again
    assert methods.create("mine").strength == 2.0


def test_the_name_of_another_class_is_refused():
    class Other(methods.Method):
        name = "fedavg"

    with pytest.raises(ValueError, match=r"'fedavg' is taken by .*FedAvg"):
        methods.register(Other)


def test_a_class_without_a_name_is_refused():
    class Nameless(methods.Method):
        pass

    with pytest.raises(ValueError, match="Nameless needs a class attribute `name`"):
        methods.register(Nameless)

"""Runtimes are chosen by name or by their settings, and listed without importing TFF."""

import dataclasses

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_pcdd import runtime, settings
from tff_pcdd.errors import SettingError
from tff_pcdd.settings import choice, option


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Settings that have a runtime among them."""

    where: runtime.RuntimeConfig = choice(runtime.registry, "inprocess", "Where it runs.")


@tff.tensorflow.computation(np.int32)
def _double(x):
    return 2 * x


def _refusal(function, *arguments, **options):
    with pytest.raises(SettingError) as error:
        function(*arguments, **options)
    return error.value


def test_settings_belong_to_their_runtime():
    described = {setting.name: setting for setting in settings.describe(Experiment)}
    owners = {name: setting.applies_to for name, setting in described.items()}
    assert owners == {
        "runtime": (),
        "client_parallelism": ("inprocess",),
        "devices": ("inprocess",),
        "clients_per_gpu": ("inprocess",),
        "gpu_memory": ("inprocess",),
        "insecure": ("tff",),
        **dict.fromkeys(("ray_address", "ray_actors", "ray_cpus", "ray_gpus"), ("ray",)),
        **dict.fromkeys(("ray_timeout", "data_placement"), ("ray",)),
    }
    flat = {"runtime": "inprocess", "client_parallelism": 3, "devices": "CPU:0"}
    flat |= {"clients_per_gpu": 2, "gpu_memory": 8.0}
    assert settings.flatten(settings.build(Experiment, flat)) == flat
    error = _refusal(settings.build, Experiment, {"runtime": "tff", "devices": "CPU:0"})
    assert (error.setting, error.reason) == ("devices", "applies only with runtime=inprocess")


def test_lists_of_names_become_settings():
    for devices in (["CPU:0", "CPU:1"], ("CPU:0", "CPU:1")):
        config = runtime.create("inprocess", devices=devices)
        assert settings.flatten(config)["devices"] == "CPU:0,CPU:1"


def test_refusals():
    error = _refusal(runtime.use, "gpu")
    assert (error.setting, error.value) == ("runtime", "gpu")
    assert "choose one of inprocess, ray, tff" in error.reason
    assert _refusal(runtime.create, "tff", devices="CPU:0").setting == "devices"
    error = _refusal(runtime.create, "inprocess", client_parallelism=0)
    assert (error.setting, error.value) == ("client_parallelism", 0)


def test_a_runtime_that_cannot_start_leaves_the_one_in_force():
    current = tff.framework.get_context_stack().current
    error = _refusal(runtime.use, "inprocess", devices="CPU:0, GPU:7")
    assert error.setting == "devices"
    assert "no device GPU:7" in error.reason
    assert tff.framework.get_context_stack().current is current


def test_use_takes_settings():
    config = runtime.create("inprocess", client_parallelism=1)
    with runtime.use(config):
        assert _double(3) == 6
    used = runtime.use(config, client_parallelism=2)
    with used:
        assert used.config == dataclasses.replace(config, client_parallelism=2)
        assert used.name == "inprocess"
        assert _double(3) == 6


def test_a_block_that_has_ended_is_not_returned_to():
    """Although a plain call within it has followed it, and the next block follows that call."""
    outer = tff.framework.get_context_stack().current
    with runtime.use("inprocess") as first:
        runtime.use("inprocess")
    with runtime.use("inprocess"):
        pass
    after = tff.framework.get_context_stack().current
    assert after is not first
    assert after is outer


def test_a_runtime_of_a_users_own(monkeypatch):
    monkeypatch.setattr(runtime.registry, "_classes", dict(runtime.registry.classes()))

    class Answering(tff.framework.SyncContext):
        def __init__(self, answer):
            self.answer = answer

        def invoke(self, comp, arg):
            return self.answer

    @runtime.register
    @dataclasses.dataclass(frozen=True)
    class Oracle(runtime.RuntimeConfig):
        name = "oracle"
        answer: int = option(42, "What it says.", group="Runtime")

        def create_context(self):
            return Answering(self.answer)

    assert runtime.names() == ["inprocess", "oracle", "ray", "tff"]
    assert settings.build(Experiment, {"runtime": "oracle", "answer": 1}).where == Oracle(1)
    with runtime.use("oracle", answer=7):
        assert _double(3) == 7
    with runtime.installed(runtime.create("oracle").create_context()):
        assert _double(3) == 42

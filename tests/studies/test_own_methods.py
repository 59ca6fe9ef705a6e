"""Methods of the user's own are traced before the first run of a study."""

import dataclasses
import inspect

import pytest
import tensorflow as tf

from tests.data.refusals import refuses
from tests.studies.made_runs import replace_training
from tff_pcdd import federated, methods
from tff_pcdd.studies import Point, compare, own_methods, run_process, sweep
from tff_pcdd.training import ExperimentConfig, RunOptions

pytestmark = pytest.mark.usefixtures("undrawn")


class Good(methods.Method):
    name = "good"


class Lossless(methods.Method):
    name = "lossless"

    def loss(self, net, batch, client):
        return tf.zeros([3]) + tf.zeros([4]), {}


class Keyless(methods.Method):
    name = "keyless"

    def upload(self, net, client, reduce):
        return methods.Upload({"it": client.state["not there"]}, {})


def configs(*made, seeds=(0, 1), **settings):
    settings = {"model": "mlp", "num_clients": 5, **settings}
    return [
        dataclasses.replace(ExperimentConfig.from_settings(seed=seed, **settings), method=method)
        for method in made
        for seed in seeds
    ]


@pytest.fixture
def computed(monkeypatch):
    return replace_training(monkeypatch, lambda config: {})


@pytest.fixture
def traced(monkeypatch):
    """The names of the methods that are traced."""
    found = []
    monkeypatch.setattr(federated, "build_process", lambda spec, _: found.append(spec.method.name))
    monkeypatch.setattr(own_methods, "_traced", set())
    return found


def line_of(cls, text):
    """The file and the line of a class that contains a text, as an error names it."""
    lines, first = inspect.getsourcelines(cls)
    number = next(first + index for index, line in enumerate(lines) if text in line)
    return f"({__file__}, line {number})"


def test_a_method_that_cannot_be_traced_is_refused_before_the_first_run(computed, tmp_path):
    runs = configs(methods.create("fedavg"), Lossless())
    with refuses("algorithm", "^cannot be traced .*: ValueError: .*3.*4", "lossless") as caught:
        compare(runs, tmp_path)
    assert line_of(Lossless, "tf.zeros") in caught.value.reason
    with refuses("algorithm", "^cannot be traced", "lossless"):
        held_out = configs(Lossless(), validation_fraction=0.2)
        sweep([Point({"rounds": "3"}, held_out)], tmp_path / "sweep")
    assert computed == []


def test_all_of_them_are_named():
    """Here by a process that computes runs in parallel."""
    with refuses("algorithm", "^cannot be traced", "lossless") as caught:
        run_process.check(None, configs(Lossless(), Good(), Keyless()), RunOptions())
    place = line_of(Keyless, "not there")
    end = f"; algorithm=keyless: cannot be traced {place}: KeyError: 'not there'"
    assert caught.value.reason.endswith(end)


def test_methods_of_the_package_are_not_traced_and_others_once_for_all_seeds(
    computed, traced, tmp_path
):
    fedavg = methods.create("fedavg")
    compare(configs(fedavg, Good()), tmp_path / "a")
    assert traced == ["good"]
    compare(configs(Good(), seeds=(2, 3)), tmp_path / "b")
    assert traced == ["good"]
    compare(configs(Good(), seeds=(2, 3), batch_size=7), tmp_path / "c")
    assert traced == ["good", "good"]
    assert len(computed) == 8


def test_data_that_cannot_be_read_are_left_to_the_run(computed, traced, monkeypatch, tmp_path):
    def build(_):
        raise ArithmeticError("no data")

    monkeypatch.setattr("tff_pcdd.data.DataConfig.build", build)
    assert compare(configs(Good()), tmp_path).failures == []
    assert (traced, len(computed)) == ([], 2)

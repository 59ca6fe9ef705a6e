"""Runs on Ray actors: data of clients, checkpoints, own components, and the end of a program."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import textwrap

import numpy as np
import pytest
import tree

from tests import listening, preloaded, support, waiting
from tff_pcdd import export, runtime
from tff_pcdd.errors import SettingError
from tff_pcdd.runtime.processes import children
from tff_pcdd.training import (
    ComputeOptions,
    ExperimentConfig,
    RunOptions,
    Simulation,
    restore_run,
    run_experiment,
)

pytest.importorskip("ray")
pytestmark = pytest.mark.integration

_ROOT = pathlib.Path(runtime.__file__).parents[2]


def _config(**settings):
    """A method whose clients keep large states; clients take turns."""
    # The first round is evaluated like the last one, so it is not computed again.
    settings = {"rounds": 3, "personal_eval_every": 1, **settings}
    settings = {"model": "mlp", "num_clients": 5, "clients_per_round": 3, **settings}
    return ExperimentConfig.from_settings(
        algorithm="feddyn", max_train_samples=200, local_epochs=1, **settings
    )


def _compute(**settings):
    return ComputeOptions(runtime=runtime.create("ray", ray_actors=2, **settings))


def _rounds(simulation, number=3):
    """The state of the server and of all clients after some rounds, and bytes sent to clients."""
    with simulation:
        for _ in range(number):
            simulation.next_round()
        states = [simulation.store.get(client) for client in range(5)]
        counts = simulation.personal_counts()
        sent = dict(getattr(simulation._context, "sent_bytes", {}))
        return (simulation.state.weights, states, counts), sent


def _assert_close(first, second, tolerance):
    for a, b in zip(tree.flatten(first), tree.flatten(second), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


@pytest.fixture(scope="module")
def expected():
    """Three rounds and an evaluation in this process."""
    return _rounds(Simulation(_config()))[0]


@pytest.fixture(scope="module")
def on_driver(ray_here):
    """The same on actors to which the samples are sent."""
    return _rounds(Simulation(_config(), compute=_compute()))


def test_three_rounds_with_states_of_clients(expected, on_driver):
    result, _ = on_driver
    _assert_close(result[:2], expected[:2], 1e-4)


def test_actors_load_samples_themselves(on_driver):
    config = _config()
    federation = config.data.build()
    samples = sum(federation.client_examples(k)[0].x.nbytes for k in range(5))
    result, sent = on_driver
    local, sent_local = _rounds(Simulation(config, compute=_compute(data_placement="local")))
    _assert_close(local, result, 0)
    assert sent_local["clients"] < sent["clients"] - samples


@pytest.mark.rare
def test_actors_evaluate_clients_that_do_not_train(ray_here):
    config = _config(new_clients=2, clients_per_round=2)
    found = []
    for compute in (ComputeOptions(), _compute(data_placement="local")):
        with Simulation(config, compute=compute) as simulation:
            simulation.next_round()
            found.append(simulation.answers().at_new_clients)
    expected, answers = found
    assert len(answers.after) == 2
    np.testing.assert_array_equal(answers.counts["total"], expected.counts["total"])
    # The networks are equal up to rounding.
    for own, other in zip(answers.after, expected.after, strict=True):
        assert np.mean(own == other) > 0.9


def test_actors_that_find_other_samples_are_refused(ray_here):
    other = _config(data_seed=7).data.build()
    with pytest.raises(SettingError, match=r"Ray actor 0 finds other samples; use data_placement"):
        Simulation(_config(), other, compute=_compute(data_placement="local")).start()


# Rounds with states of clients are above; continued runs on other runtimes, in tests/training.
@pytest.mark.rare
def test_a_run_continues_from_its_checkpoint(on_driver, tmp_path, ray_here):
    options = RunOptions(compute=_compute(), progress=False, tensorboard=False)
    run_experiment(_config(rounds=1), tmp_path, options)
    run_experiment(_config(), tmp_path, options)
    run = restore_run(_config(), tmp_path)
    (weights, states, _), _ = on_driver
    _assert_close(run.simulation.state.weights, weights, 0)
    _assert_close([run.simulation.store.get(client) for client in range(5)], states, 0)
    # What a run on actors has saved is exported as any other.
    formats = export.ExportOptions(format="keras")
    assert export.export_run(tmp_path, tmp_path / "out", formats, config=_config())


_OWN = '''
import dataclasses
import numpy as np
from tff_pcdd import data, methods
from tff_pcdd.methods import fedavg


@methods.register
@dataclasses.dataclass(frozen=True)
class Halved(fedavg.FedAvg):
    """FedAvg with half of each change."""

    name = "halved"

    def update(self, net, client):
        return [0.5 * change for change in super().update(net, client)]


generator = np.random.default_rng(0)
y = np.arange(60, dtype=np.int32) % 3
x = (generator.normal(size=(60, 8, 8, 1)) + y[:, None, None, None]).astype(np.float32)
data.register_federation(data.from_arrays(x, y, np.arange(60) % 4, name="grid"))
'''


def _train(tmp_path, *flags, **options):
    return preloaded.Process(
        ["tasks.train", "--model=mlp", f"--output_dir={tmp_path / 'run'}", *flags],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{_ROOT}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.mark.parametrize("placement", support.rare_but(["local"], ["driver", "local"]))
def test_own_method_and_own_data(tmp_path, placement):
    (tmp_path / "own_things.py").write_text(textwrap.dedent(_OWN))
    flags = ["--import=own_things", "--algorithm=halved", "--dataset=grid", "--rounds=1"]
    flags += ["--local_epochs=1", "--runtime=ray", "--ray_actors=1", "--noprogress"]
    process = _train(tmp_path, *flags, f"--data_placement={placement}")
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert (tmp_path / "run" / "summary.json").exists(), output
    # Neither Ray nor its actors write to the program's streams.
    assert "ray" not in output.lower() + errors.lower(), errors


@pytest.mark.parametrize(
    "number",
    support.rare_but(
        [signal.SIGINT, signal.SIGKILL], [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
    ),
)
def test_nothing_is_left_of_a_program_that_ends_early(tmp_path, number):
    flags = ["--rounds=100000", "--runtime=ray", "--ray_actors=1", "--noprogress"]
    process = _train(tmp_path, *flags, start_new_session=True)
    waiting.until(lambda: list(tmp_path.glob("run/checkpoints/*.json")), process)
    below = children(process.pid)
    listened = listening.addresses(below)
    assert listened and listened <= listening.LOOPBACK
    # From a terminal, Ctrl-C reaches all processes of its group.
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    _, errors = process.communicate(timeout=300)
    if number != signal.SIGKILL:
        assert process.returncode == 128 + number
        assert errors.splitlines()[-1].endswith("; the same command resumes it"), errors
    waiting.until_ended(*below)


@pytest.mark.rare
@pytest.mark.parametrize("part", ["ray::DashboardAgent", "/raylet/raylet ", "/gcs/gcs_server "])
def test_the_loss_of_ray_is_said(tmp_path, part):
    flags = ["--rounds=100000", "--runtime=ray", "--ray_actors=1", "--noprogress"]
    process = _train(tmp_path, *flags)
    waiting.until(lambda: list(tmp_path.glob("run/checkpoints/*.json")), process)
    below = children(process.pid)
    (lost,) = [pid for pid in below if part in _command(pid)]
    os.kill(lost, signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    (line,) = [line for line in errors.splitlines() if line.startswith("train: error: ")]
    said, _, logs = line.partition("; Ray's logs are in ")
    name = said.removeprefix("train: error: Ray's process ").partition(" ")[0]
    assert said.endswith(f"{name} has ended, without which no actor can be reached")
    # The raylet ends with its agent, and takes the server with it at times.
    assert f"/{name} " in part or ("Agent" in part and name in ("raylet", "gcs_server"))
    assert "Traceback" not in errors
    assert pathlib.Path(logs).is_dir()
    waiting.until_ended(*below)
    shutil.rmtree(pathlib.Path(logs).parents[2])
    # The results so far are complete.
    assert list(tmp_path.glob("run/checkpoints/*.json"))


def _command(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""

"""What is read of a run without TensorFlow: settings and summary, whole and damaged."""

import json
import re

import pytest

from tests.data.refusals import refuses
from tff_pcdd.training import ExperimentConfig, recovery, run_directory, run_experiment

CONFIG = ExperimentConfig.from_settings(algorithm="fedgela", fedgela_scale=2.0, rounds=3)


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG.to_settings()))
    return tmp_path


def test_settings_come_back(directory):
    assert run_directory.read_config(directory) == CONFIG
    run_directory.check_directory(directory, CONFIG, overwrite=False)


def test_data_may_have_moved(tmp_path):
    config = ExperimentConfig.from_settings(
        dataset="cifar10", data_dir="there", partition="iid", seed=3
    )
    run_directory.write_config(tmp_path, config)
    moved = run_directory.read_config(tmp_path, "elsewhere")
    assert moved.data.source.data_dir == "elsewhere"
    assert moved == config.with_settings(data_dir="elsewhere")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"algorithm": "fedge', "config.json is damaged (Unterminated string"),
        (b"", "config.json is damaged (Expecting value"),
        (b"\xff\xfe\x00", "config.json is damaged ('utf-8' codec can't decode"),
        (b"[1, 2]", "config.json is damaged (not a JSON object)"),
        (b"{}", "config.json has no algorithm"),
        (b'{"algorithm": "fedavg", "dataset": "digits"}', "config.json has no model"),
        (
            b'{"algorithm": "fedsgd", "dataset": "digits", "model": "mlp"}',
            "config.json cannot be used: algorithm=fedsgd: nothing of that name is registered; "
            "import its module or, if it is an object in Python, give the run's `config` and ",
        ),
        (
            b'{"algorithm": "mine", "dataset": "digits", "model": "mlp", "import": {"my": ""}}',
            "config.json cannot be used: algorithm=mine: nothing of that name is registered; "
            "import my or, if it is an object in Python",
        ),
        (
            b'{"algorithm": "fedavg", "dataset": "digits", "model": "mlp", "rounds": "many"}',
            "config.json cannot be used: rounds=many: must be a whole number",
        ),
        (
            b'{"algorithm": "fedavg", "dataset": "digits", "model": "mlp", "metrics": ["a"]}',
            "config.json cannot be used: metrics=['a']: must be a string of names",
        ),
        (
            b'{"algorithm": ["fedavg"], "dataset": "digits", "model": "mlp"}',
            "config.json cannot be used: ",
        ),
    ],
)
def test_damaged_settings(directory, text, reason):
    (directory / "config.json").write_bytes(text)
    with refuses("run_dir", f"^{re.escape(reason)}") as caught:
        run_directory.read_config(directory)
    assert caught.value.value == directory
    if "damaged" in reason:
        with refuses("output_dir", f"^{re.escape(reason)}") as caught:
            run_directory.check_directory(directory, CONFIG, overwrite=False)
        assert caught.value.value == directory
        assert "overwrite" in caught.value.reason
    run_directory.check_directory(directory, CONFIG, overwrite=True)


def test_a_damaged_summary(directory):
    assert recovery.read_summary(directory) is None
    (directory / "summary.json").write_text('{"ga_final": 3')
    with refuses("output_dir", "^summary.json is damaged") as caught:
        run_experiment(CONFIG, directory)
    assert caught.value.value == directory


def test_a_directory_without_a_run(tmp_path):
    for name in (".", "none"):
        with refuses("run_dir", "holds no run: there is no config.json"):
            run_directory.read_config(tmp_path / name)


def test_what_was_written_is_read(tmp_path):
    run_directory.write_summary(tmp_path, {"ga_final": 1.5, "pa_final": None})
    assert recovery.read_summary(tmp_path) == {"ga_final": 1.5, "pa_final": None}
    assert json.loads((tmp_path / "summary.json").read_text())["pa_final"] is None

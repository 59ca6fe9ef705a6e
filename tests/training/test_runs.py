"""What a program reads of a run before TensorFlow: settings and summary, whole and damaged."""

import json

import pytest

from tff_pcdd.options import OptionError
from tff_pcdd.training import ExperimentConfig, runs

CONFIG = ExperimentConfig.from_settings(algorithm="fedgela", fedgela_scale=2.0, rounds=3)


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG.to_json()))
    return tmp_path


def test_settings_come_back(directory):
    assert runs.read_config(directory) == CONFIG
    assert runs.read_config(directory, "elsewhere").data_dir == "elsewhere"
    runs.check_directory(directory, CONFIG, overwrite=False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"algorithm": "fedge', "config.json is damaged (Unterminated string"),
        (b"", "config.json is damaged (Expecting value"),
        (b"\xff\xfe\x00", "config.json is damaged ('utf-8' codec can't decode"),
        (b"[1, 2]", "config.json is damaged (no object)"),
        (b"{}", "config.json has no data_dir"),
        (b'{"data_dir": null}', "config.json has no algorithm"),
        (
            b'{"data_dir": null, "algorithm": "fedsgd"}',
            "config.json cannot be used: --algorithm=fedsgd",
        ),
        (
            b'{"data_dir": null, "algorithm": "fedavg", "rounds": "many"}',
            "config.json cannot be used: --rounds=many: must be a whole number",
        ),
    ],
)
def test_damaged_settings(directory, text, message):
    (directory / "config.json").write_bytes(text)
    with pytest.raises(OptionError) as caught:
        runs.read_config(directory)
    assert str(caught.value).startswith(f"--run_dir={directory}: {message}")
    if "damaged" in message:
        with pytest.raises(OptionError) as caught:
            runs.check_directory(directory, CONFIG, overwrite=False)
        assert str(caught.value).startswith(f"--output_dir={directory}: {message}")
        assert "--overwrite" in str(caught.value)
    runs.check_directory(directory, CONFIG, overwrite=True)


def test_a_damaged_summary(directory):
    assert runs.read_summary(directory) is None
    (directory / "summary.json").write_text('{"ga_final": 3')
    with pytest.raises(OptionError, match=f"--output_dir={directory}: summary.json is damaged"):
        runs.run_experiment(CONFIG, directory)

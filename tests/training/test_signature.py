"""Paths that the settings of a run name are followed only if this user has signed them."""

import json
import os

import pytest

from tests.data.refusals import refuses
from tff_pcdd.training import ExperimentConfig, run_directory, signature

CONFIG = ExperimentConfig.from_settings(dataset="cifar10", data_dir="/data/cifar", partition="iid")


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "tff_pcdd" / "secret"


@pytest.fixture
def run(tmp_path):
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def _data_dir(run, *given, **paths):
    return run_directory.read_config(run, *given, **paths).data.source.data_dir


def test_the_path_of_an_own_run_is_followed(run, state):
    run_directory.write_config(run, CONFIG)
    assert _data_dir(run) == "/data/cifar"
    assert state.stat().st_mode & 0o777 == 0o600
    assert state.parent.stat().st_mode & 0o777 == 0o700
    assert len(state.read_bytes()) == 32
    # The secret is made once, and another run is signed with it.
    before = state.read_bytes()
    run_directory.write_config(run, CONFIG.with_settings(data_dir="/other"))
    assert _data_dir(run) == "/other"
    assert state.read_bytes() == before
    assert os.listdir(state.parent) == ["secret"]


def test_a_check_makes_no_secret(run, state):
    run_directory.write_config(run, CONFIG)
    state.unlink()
    state.parent.rmdir()
    assert not signature.is_signed(run, {"data_dir": "/data/cifar"})
    assert not state.parent.exists()


def test_a_flagfile_that_a_sweep_writes_is_signed(tmp_path):
    signature.write_signed(tmp_path / "best.flags", "--seed=3\n")
    assert (tmp_path / "best.flags").read_text() == "--seed=3\n"
    assert signature.is_signed_contents(b"--seed=3\n")
    assert not signature.is_signed_contents(b"--seed=4\n")


def test_a_flagfile_is_written_also_if_signatures_cannot_be(tmp_path, state):
    """The home directory is read-only, or its quota is used up."""
    signature.sign_contents(b"--seed=4\n")
    (state.parent / "flagfiles").unlink()
    (state.parent / "flagfiles").mkdir()
    signature.write_signed(tmp_path / "best.flags", "--seed=3\n")
    assert (tmp_path / "best.flags").read_text() == "--seed=3\n"
    assert not signature.is_signed_contents(b"--seed=3\n")


def test_a_run_may_be_moved(run, tmp_path):
    run_directory.write_config(run, CONFIG)
    run.rename(tmp_path / "moved")
    assert _data_dir(tmp_path / "moved") == "/data/cifar"


def _refused(run):
    with refuses("data_dir", f"is not followed, because config.json in {run} names it") as caught:
        _data_dir(run)
    assert caught.value.value == "/data/cifar"


def test_a_foreign_path_is_named_and_asked_for(run):
    (run / "config.json").write_text(json.dumps(CONFIG.to_settings()))
    _refused(run)
    assert _data_dir(run, "/mine") == "/mine"
    # It may be the same, if it is given.
    assert _data_dir(run, "/data/cifar") == _data_dir(run, data_dir="/data/cifar") == "/data/cifar"
    run_directory.write_config(run, CONFIG)
    (run / "signature.json").unlink()
    _refused(run)


def test_a_signature_is_of_this_path_and_of_this_user(run, state):
    run_directory.write_config(run, CONFIG.with_settings(data_dir="/other"))
    (run / "config.json").write_text(json.dumps(CONFIG.to_settings()))
    _refused(run)
    run_directory.write_config(run, CONFIG)
    state.unlink()
    _refused(run)
    run_directory.write_config(run, CONFIG)
    assert _data_dir(run) == "/data/cifar"
    state.write_bytes(b"x" * 32)
    _refused(run)


def test_relative_paths_are_those_from_the_same_place(run, tmp_path, monkeypatch):
    run_directory.write_config(run, CONFIG.with_settings(data_dir="data"))
    assert _data_dir(run) == "data"
    monkeypatch.chdir(tmp_path)
    with refuses("data_dir", "is not followed"):
        _data_dir(run)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"signature": 3}', '{"signature": "é"}', "\x00", "[" * 900]
)
def test_damaged_signatures(run, text):
    run_directory.write_config(run, CONFIG)
    (run / "signature.json").write_text(text)
    _refused(run)


def test_a_pipe_instead_of_a_signature(run):
    run_directory.write_config(run, CONFIG)
    (run / "signature.json").unlink()
    os.mkfifo(run / "signature.json")
    _refused(run)


def test_a_secret_that_others_can_read_is_not_used(run, state):
    run_directory.write_config(run, CONFIG)
    state.chmod(0o644)
    _refused(run)
    # A run is trained all the same.
    run_directory.write_config(run, CONFIG)
    assert not (run / "signature.json").exists()


def test_without_a_place_for_the_secret_nothing_is_signed(run, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    run_directory.write_config(run, CONFIG)
    assert sorted(os.listdir(run)) == ["config.json"]
    _refused(run)


def test_runs_without_paths_need_no_signature(run, state):
    config = ExperimentConfig.from_settings(algorithm="fedgela")
    run_directory.write_config(run, config)
    assert run_directory.read_config(run) == config
    assert not state.exists()


def test_weights_are_a_path_too(run):
    config = ExperimentConfig.from_settings(
        dataset="cifar10", model="efficientnet_b0", pretrained_weights="/weights.h5"
    )
    assert run_directory.path_settings() == ["data_dir", "pretrained_weights", "warm_start"]
    (run / "config.json").write_text(json.dumps(config.to_settings()))
    with refuses("pretrained_weights", "is not followed"):
        run_directory.read_config(run)
    read = run_directory.read_config(run, pretrained_weights="/mine.h5")
    assert read.model.backbone.pretrained_weights == "/mine.h5"


def test_only_runs_of_other_settings_are_refused_and_not_of_other_limits(run):
    run_directory.write_config(run, CONFIG)
    raised = CONFIG.with_settings(max_json_bytes=10**9)
    run_directory.check_directory(run, raised, overwrite=False)
    with refuses("output_dir", "different settings: data_dir"):
        run_directory.check_directory(run, CONFIG.with_settings(data_dir="x"), overwrite=False)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' * 100_000, "{}" + " " * 10_000_001])
def test_config_json_is_bounded(run, text):
    (run / "config.json").write_text(text)
    with refuses("run_dir", r"config.json is damaged"):
        run_directory.read_config(run)


def test_config_json_is_a_regular_file(run):
    os.mkfifo(run / "config.json")
    with refuses("run_dir", "holds no run"):
        run_directory.read_config(run)


def test_is_signed_needs_a_secret_of_the_right_length(run, state):
    run_directory.write_config(run, CONFIG)
    state.write_bytes(b"")
    assert not signature.is_signed(run, {"data_dir": "/data/cifar"})

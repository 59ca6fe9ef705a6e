"""Warnings are lines of the program, whatever a user's module imports first."""

import ast
import gc
import logging
import re
import subprocess
import sys

import absl.logging
import pytest
import tensorflow as tf
import tqdm
from tensorflow_model_optimization.python.core.internal.tensor_encoding.utils import tf_utils

from tests import support
from tests.cli.conftest import ROOT
from tff_pcdd import stages
from tff_pcdd.cli import experiments, messages, other_programs, program


@pytest.fixture(autouse=True)
def logging_as_it_was(monkeypatch):
    monkeypatch.setattr(logging.root, "handlers", [])
    for name in ("tensorflow", "root"):
        monkeypatch.setattr(logging.getLogger(name), "filters", [])
    levels = {name: logging.getLogger(name).level for name in ("root", "tensorflow", stages.LOADED)}
    verbosity = absl.logging.get_verbosity()
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    absl.logging.set_verbosity(verbosity)


def test_a_warning_is_a_line_without_a_time(capsys):
    messages.install("train")
    logging.warning("%d of %d clients have no samples", 2, 10)
    absl.logging.warning("another")
    logging.info("not shown")
    expected = "train: warning: 2 of 10 clients have no samples\ntrain: warning: another\n"
    assert capsys.readouterr().err == expected


def test_what_was_loaded_is_a_line_without_a_level(capsys):
    messages.install("partition")
    logging.getLogger(stages.LOADED).info("a.csv: 2 classes (ill, well)")
    assert capsys.readouterr().err == "partition: a.csv: 2 classes (ill, well)\n"
    messages.set_level(absl.logging.ERROR)
    logging.getLogger(stages.LOADED).info("not shown")
    assert capsys.readouterr().err == ""


def test_handlers_of_modules_do_not_repeat_it(capsys):
    logging.basicConfig()
    logging.root.addHandler(absl.logging.get_absl_handler())
    messages.install("train")
    messages.install("evaluate")
    logging.error("once")
    assert capsys.readouterr().err == "evaluate: error: once\n"


def test_a_message_does_not_tear_the_progress_bar(capsys):
    messages.install("train")
    bar = tqdm.tqdm(total=3, file=sys.stderr)
    logging.warning("above")
    bar.close()
    assert "\rtrain: warning: above\n" in capsys.readouterr().err.replace(" \r", "\r")


def test_libraries_are_heard_if_the_user_wants_to(capsys):
    messages.install("train")
    logging.getLogger("tensorflow").warning("retracing")
    assert capsys.readouterr().err == ""
    messages.set_level(0)
    logging.getLogger("tensorflow").warning("retracing")
    logging.info("more")
    assert capsys.readouterr().err == "train: warning: retracing\ntrain: info: more\n"


def test_operations_that_tff_does_not_use_are_no_errors(capsys):
    """TensorFlow calls them so in runs with aggregator=secure, which succeed."""
    messages.install("train")
    graph = tf.Graph()
    with graph.as_default():
        low, high = (tf.compat.v1.placeholder(tf.float32) for _ in range(2))
        tf.debugging.assert_less_equal(low, high)
    gc.collect()
    logging.getLogger("tensorflow").error("another")
    assert capsys.readouterr().err == "train: error: another\n"


def test_what_compression_says_of_each_tensor_is_not_shown(capsys):
    """With aggregator=compressed and 4 bits, dozens of times in a run."""
    messages.install("train")
    # Seven entries of 4 bits in 28: the sum of 16^k·entry.
    packed = tf_utils.pack_into_int(tf.constant([1, 2, 3, 0, 0, 0, 1]), 4, 28)
    assert packed.numpy().tolist() == [[1 + 2 * 16 + 3 * 16**2 + 16**6]]
    absl.logging.warning("another")
    assert capsys.readouterr().err == "train: warning: another\n"
    messages.set_level(0)
    tf_utils.pack_into_int(tf.constant([1]), 4, 28)
    assert "extra memory" in capsys.readouterr().err


@pytest.mark.integration
@pytest.mark.parametrize(
    "library", support.rare_but(["tensorflow_federated"], ["tensorflow", "tensorflow_federated"])
)
def test_a_module_that_imports_tensorflow_first_shows_none_of_its_notes(library, tmp_path):
    (tmp_path / "mine.py").write_text(
        f"import {library}\nimport absl.logging, tensorflow as tf\n"
        "absl.logging.warning('mine')\ntf.get_logger().warning('of TensorFlow')\n"
    )
    command = [sys.executable, "-m", "tasks.partition", "--import=mine", "--output_dir=out"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "", "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "partition: warning: mine\n"


@pytest.mark.parametrize("places", [("",), ("comparison",), ("", "comparison")])
def test_failed_runs_name_the_files_that_exist(places, tmp_path):
    """The trials and the final runs of a sweep over methods have one each."""
    for place in places:
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / place / "failures.txt").touch()
    named = " and ".join(str(tmp_path / place / "failures.txt") for place in places)
    directories = str(tmp_path), str(tmp_path / "comparison")
    with pytest.raises(SystemExit) as end:
        experiments.end_if_failed("sweep", ["moon seed 1: E"], 4, *directories)
    first, second = str(end.value).splitlines()
    assert first.startswith("sweep: error: 1 of 4 runs failed; the same command tries them again")
    assert first.endswith(f"; tracebacks are in {named}")
    assert second == "moon seed 1: E"


ALL = {name for _, its in other_programs.flags() for name in its.names()}


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        (
            "choose another model_version or set `overwrite`",
            "choose another --model_version or set --overwrite",
        ),
        ("set validation_fraction.", "set --validation_fraction."),
        (
            "must be at most local_epochs=2 (rounds=3)",
            "must be at most --local_epochs=2 (--rounds=3)",
        ),
        ("with --rounds=3 and --num_clients", "with --rounds=3 and --num_clients"),
        # A word that is a flag too, names of columns, files and values.
        ("name seeds and rounds", "name seeds and rounds"),
        ("column 'num_clients' or \"data_dir\"", "column 'num_clients' or \"data_dir\""),
        ("runs/rounds=3,seed=1/data_dir/batch_size.csv", None),
        ("data_dir: there are no images", "data_dir: there are no images"),
        (
            "x is missing, there are image_size, batch_size; label_column can name another",
            "x is missing, there are image_size, batch_size; --label_column can name another",
        ),
        ("--grid=local_epochs=1", "--grid=local_epochs=1"),
        ("path_pattern='{data_dir}.jpg' adds", "--path_pattern='{data_dir}.jpg' adds"),
    ],
)
def test_settings_in_texts_are_typed_as_flags(text, typed):
    assert messages.as_typed(text, ALL) == (typed or text)
    assert messages.as_typed(text, ()) == text, "a program without these flags"


def test_settings_of_training_are_typed_as_flags_elsewhere():
    text = "train with `rounds=9`, or a larger `keep_checkpoints`; `x=1`, checkpoint_round=best"
    typed = (
        "train with --rounds=9, or a larger --keep_checkpoints of tasks.train; `x=1`, "
        "--checkpoint_round=best"
    )
    assert messages.as_typed(text, {"checkpoint_round"}) == typed


def test_warnings_name_flags_as_they_are_typed(capsys):
    messages.install("train", {"bn", "impute"})
    logging.warning("bn=personal: has no effect; impute=median, data_dir=x")
    assert capsys.readouterr().err == (
        "train: warning: --bn=personal: has no effect; --impute=median, data_dir=x\n"
    )


# What makes a plain word of a refusal the name of a setting, unless a value or `name` says so.
AS_NAME = "(only|or set|and set|; set|combined|named|leave out|switch off) (with |by )?"


def test_no_refusal_names_a_setting_like_a_word():
    """Settings without an underscore are known by their value, or by `name`."""
    words = "|".join(name for name in ALL if "_" not in name)
    bare = re.compile(rf"\b{AS_NAME}({words})\b(?![=`])")
    found = []
    for path in sorted((ROOT / "tff_pcdd").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant | ast.JoinedStr):
                text = ast.unparse(node)
                if r"\n" not in text and bare.search(text):  # Docstrings have several lines.
                    found.append(f"{path.name}: {text}")
    assert not found


def exhausted(text):
    """As TensorFlow's error, which programs tell by its name."""
    return type("ResourceExhaustedError", (Exception,), {})(text)


def caused_by(cause):
    error = Exception()
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "there is not enough memory; what was complete is kept"),
        (RuntimeError("can't start new thread"), "the system allows this user no further thread"),
        (
            exhausted("OOM when allocating\nmore"),
            "there is not enough memory; what was complete is kept (OOM when allocating)",
        ),
        (
            # Of a client, on a GPU, behind lines about the graph.
            caused_by(
                exhausted(
                    "Graph execution error:\n"
                    "OOM when allocating tensor with shape[9] on /device:GPU:0\nHint"
                )
            ),
            "there is not enough memory on the GPU; lower --batch_size, --eval_batch_size or "
            "--clients_per_gpu, or end other programs on it; what was complete is kept (OOM when "
            "allocating tensor with shape[9] on /device:GPU:0)",
        ),
        (
            RuntimeError("Random ops require a seed to be set when determinism is enabled. Please"),
            "--deterministic: TensorFlow says: Random ops require a seed to be set when "
            "determinism is enabled. Please; leave it out",
        ),
    ],
)
def test_what_the_machine_lacks_is_said_in_a_line(error, reason, capsys):
    def main(flags):
        raise error

    with pytest.raises(SystemExit) as end:
        program.run("Help.", lambda flags: None, main, ["it"])
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (1, "")
    assert err.startswith(f"it: error: {reason}")
    assert err.count("\n") == 1

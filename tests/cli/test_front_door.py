"""`tff-pcdd`, or `python -m tff_pcdd`: one command for all programs, and what a machine has."""

import functools
import platform
import re
import socket
import subprocess
import sys

import pytest

from tests.cli.conftest import ROOT
from tff_pcdd import __version__, machine, methods, stack
from tff_pcdd.cli import completion, doctor, front_door, gpu_check, train
from tff_pcdd.runtime import launcher


def called(capsys, *arguments, run=front_door.run, program="/bin/tff-pcdd"):
    """Status, output and errors."""
    capsys.readouterr()
    try:
        run([program, *arguments])
        status = 0
    except SystemExit as end:
        status = end.code
    return (status, *capsys.readouterr())


@pytest.mark.parametrize("arguments", [(), ("--help",), ("help",)])
def test_it_lists_its_programs(arguments, capsys):
    status, out, err = called(capsys, *arguments)
    assert (status, err) == (0, "")
    assert re.findall(r"^  (\w+) +[A-Z].*\.$", out, re.M) == [*front_door.PROGRAMS]


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        (["help", "compare"], ["compare", "--help"]),
        (["compare", "--seeds=0,1"], ["compare", "--seeds=0,1"]),
    ],
)
def test_arguments_are_passed_on(given, passed, capsys, monkeypatch):
    seen = []
    from tff_pcdd.cli import compare

    monkeypatch.setattr(compare, "run", lambda: seen.append(front_door.sys.argv))
    monkeypatch.setattr(front_door.sys, "argv", [])
    assert called(capsys, *given)[0] == 0
    assert seen == [passed]


@pytest.mark.parametrize("redirection", ["", "2>&-"])
def test_streams_that_are_ascii_or_closed(redirection):
    """The help has an ellipsis."""
    env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-m", "tff_pcdd"]
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"usage: tff-pcdd PROGRAM --FLAG=VALUE \\u2026\n")


def test_versions(capsys):
    status, out, _ = called(capsys, "--version")
    assert status == 0
    assert out.startswith(f"tff_pcdd {__version__}")
    assert f"Python {platform.python_version()}, TensorFlow {stack.version('tensorflow')}" in out
    assert "TensorFlow Federated 0.87.0" in out


def test_a_name_that_is_none_of_them(capsys):
    status, _, err = called(capsys, "trian")
    assert status == 2
    assert err.startswith("tff-pcdd: error: trian: choose one of train, compare,")
    assert err.endswith("; did you mean train?\n")


def test_a_misspelled_flag(capsys):
    status, _, err = called(capsys, "--vesion")
    assert status == 2
    assert err.endswith("; did you mean --version?\n")


def test_programs_say_the_versions_too(capsys):
    status, out, _ = called(capsys, "--version", run=train.run, program="train")
    assert status == 0
    assert out.startswith(f"tff_pcdd {__version__}")


diagnosed = functools.partial(called, run=doctor.run, program="doctor")


@pytest.fixture
def well(monkeypatch):
    """A machine on which nothing is wrong."""
    monkeypatch.setattr(gpu_check, "findings", lambda: [doctor.Finding(doctor.OK, "no GPU")])
    monkeypatch.setattr(doctor, "_MEMORY", 0)
    monkeypatch.setattr(doctor, "_DISK", 0)


def test_a_machine_on_which_nothing_is_wrong(well, capsys):
    status, out, _ = diagnosed(capsys)
    assert status == 0
    assert {line[:2] for line in out.splitlines()} <= {"ok", "--"}


def test_a_package_that_is_missing(well, capsys, monkeypatch):
    versions = {"tensorflow": "2.21.0", "tf-keras": "2.21.0"}
    monkeypatch.setattr(stack, "version", versions.get)
    status, out, _ = diagnosed(capsys)
    assert status == 1
    assert "\n!! found tensorflow-federated (missing)" in out
    assert "\n-- no Ray, which --runtime=ray needs: make install-ray" in out
    assert "TensorFlow Federated missing" in out


@pytest.mark.parametrize(
    ("where", "name", "value", "line"),
    [
        (doctor, "_MEMORY", 10**6, "of memory; TensorFlow and TFF need 1000000 GiB"),
        (doctor, "_DISK", 10**9, "; runs need 1000000000 GiB or more"),
    ],
)
def test_too_little_of_something(well, where, name, value, line, capsys, monkeypatch):
    monkeypatch.setattr(where, name, value)
    status, out, _ = diagnosed(capsys)
    assert status == 1
    (wrong,) = [found for found in out.splitlines() if found.startswith("!! ")]
    assert line in wrong


def test_what_only_some_need(well, capsys, monkeypatch):
    monkeypatch.setattr(machine, "slow_bfloat16", lambda gpus: "the processor is old")
    monkeypatch.setattr(launcher, "can_isolate", lambda: False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(doctor, "_PORT", taken.getsockname()[1])
        status, out, _ = diagnosed(capsys)
    assert status == 0
    assert "\n-- the processor is old; keep --precision=float32" in out
    assert "\n-- the kernel grants no network of its own" in out
    assert "Address already in use; choose another: make serve PORT=…" in out


def test_it_has_help_and_no_flags(capsys):
    status, out, _ = diagnosed(capsys, "--help")
    assert status == 0
    assert "tff-pcdd doctor" in out
    expected = (2, "", "doctor: error: --fast: there are no flags but --help\n")
    assert diagnosed(capsys, "--fast") == expected


# What a shell has cut a line into, and what it is completed to.
COMPLETED = [
    ("tff-pcdd tr", "train "),
    ("tff-pcdd com", "compare completion "),
    ("tff-pcdd ru", "runs "),
    ("tff-pcdd train --local_ep", "--local_epochs="),
    ("tff-pcdd train --overw", "--overwrite "),
    ("tff-pcdd train --norepo", "--noreport "),
    ("tff-pcdd train --algorithms", ""),
    ("tff-pcdd compare --algorithm", "--algorithms="),
    ("tff-pcdd evaluate --run_d", "--run_dir="),
    ("tff-pcdd evaluate --rounds", ""),
    ("tff-pcdd train --dataset = dig", "digits "),
    ("tff-pcdd train --algorithm = fedgel", "fedgela "),
    ("tff-pcdd train --algorithm=fedgel", "--algorithm=fedgela "),
    ("tff-pcdd compare --algorithms = fedavg,fedgel", "fedavg,fedgela "),
    ("tff-pcdd train --join_names =", "true false "),
    ("tff-pcdd train --cohort_sampling = rou", "round_robin "),
    ("tff-pcdd train --rounds =", ""),
    ("tff-pcdd train --flagfile = mi", "mine.flags"),
    ("tff-pcdd train --output_dir = ru", "runs"),
    ("tff-pcdd doctor -", ""),
]


def test_bash_completes_programs_flags_and_values(tmp_path):
    (tmp_path / "script.bash").write_text(completion.script("bash"))
    (tmp_path / "mine.flags").touch()
    (tmp_path / "runs").mkdir()
    lines = ["source ./script.bash", "complete -p tff-pcdd"]
    for line, _ in COMPLETED:
        words = line.split(" ")
        lines += [
            f"COMP_WORDS=({' '.join(map(repr, words))}) COMP_CWORD={len(words) - 1} COMPREPLY=()",
            '_tff_pcdd; printf "%s" "${COMPREPLY[@]}"; echo',
        ]
    ran = subprocess.run(
        ["bash", "--norc", "-u"],
        input="\n".join(lines),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stderr == ""
    first, *found = ran.stdout.splitlines()
    assert first == "complete -o nospace -F _tff_pcdd tff-pcdd"
    assert found == [completed for _, completed in COMPLETED]


def test_zsh_has_the_same_words():
    """Its own commands take them; zsh is not on every machine that runs the tests."""
    bash, zsh = (completion.script(shell) for shell in ("bash", "zsh"))
    words = re.compile(r"_tff_pcdd_programs.*?(?=\n_tff_pcdd\(\) )", re.DOTALL)
    assert words.search(bash)[0] == words.search(zsh)[0]
    assert zsh.startswith("#compdef tff-pcdd\n")
    assert re.search(rf"^    algorithm\) echo {' '.join(methods.names())} ;;$", zsh, re.M)


def test_completion_needs_no_tensorflow_and_names_its_shells(capsys):
    code = (
        "import sys; from tff_pcdd.cli import front_door\n"
        "front_door.run(['tff-pcdd', 'completion', 'zsh']); assert 'tensorflow' not in sys.modules"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "_tff_pcdd_values()" in ran.stdout
    for arguments, reason in (
        ((), "name bash or zsh"),
        (("fish",), "fish: choose one of bash, zsh"),
        (("bash", "zsh"), "bash zsh: choose one of bash, zsh"),
    ):
        with pytest.raises(SystemExit):
            completion.run(["completion", *arguments])
        out, err = capsys.readouterr()
        assert out == ""
        assert err == f"completion: error: {reason}\n"
    completion.run(["completion", "--help"])
    assert "tff-pcdd completion bash >" in capsys.readouterr().out

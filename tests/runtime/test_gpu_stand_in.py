"""The tests marked `gpu` run, in a quick form, on a logical CPU device in the place of a GPU."""

import subprocess
import sys

import pytest

from benchmarks import processes

# One of each kind.
QUICK = (
    "(fedmr and equal and not nomargin) or (fedavg and repeated) or moves_all_weights[mlp] or "
    "one_that_is_not[client-mlp] or compiled_rounds or test_runs and not ray"
)


def run_gpu_tests(*arguments):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "gpu", "tests/gpu"]
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, cwd=processes.ROOT, timeout=900
    )


@pytest.mark.slow
@pytest.mark.rare
def test_quick_form():
    done = run_gpu_tests("--gpu-stand-in", "-k", QUICK)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "8 passed, 2 skipped" in done.stdout


@pytest.mark.slow
@pytest.mark.rare
def test_without_a_gpu_they_say_why_they_are_skipped():
    done = run_gpu_tests("-rs", "-k", "mlp")
    if " passed" not in done.stdout:
        assert "TensorFlow sees no GPU; see docs/how-to/gpu.md" in done.stdout

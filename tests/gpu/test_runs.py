"""Runs on a GPU: resumed elsewhere, exported, on Ray's actors, and with too little memory."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import processes
from tests.training.runs import rows
from tff_pcdd import export, runtime
from tff_pcdd.training import ComputeOptions, ExperimentConfig, RunOptions, run_experiment

CONFIG = ExperimentConfig.from_settings(
    algorithm="fedgela",
    model="mlp",
    num_clients=5,
    max_train_samples=80,
    max_test_samples=40,
    rounds=3,
    local_epochs=2,
    batch_size=8,
    personal_eval_every=1,
)


def options(device):
    compute = ComputeOptions(
        runtime=runtime.create("inprocess", devices=device, client_parallelism=1)
    )
    return RunOptions(compute=compute, progress=False, tensorboard=False)


def losses(directory):
    return [float(row["train_loss"]) for row in rows(directory)]


def test_a_run_continues_on_the_card_and_back_on_the_processor(card, tmp_path):
    moving, staying = tmp_path / "moving", tmp_path / "staying"
    run_experiment(CONFIG, moving, options("CPU:0"), pause_after=1)
    run_experiment(CONFIG, moving, options(card), pause_after=2)
    run_experiment(CONFIG, moving, options("CPU:0"))
    run_experiment(CONFIG, staying, options("CPU:0"))
    assert losses(moving)[0] == losses(staying)[0]
    np.testing.assert_allclose(losses(moving), losses(staying), rtol=1e-3)


def test_an_exported_model_answers_as_the_run_on_the_card(card, tmp_path):
    run_experiment(CONFIG, tmp_path / "run", options(card))
    exported = export.export_run(
        tmp_path / "run", tmp_path / "exported", export.ExportOptions(), options(card)
    )
    (last,) = rows(tmp_path / "run")[-1:]
    assert exported[0].accuracy == float(last["ga"])
    test = CONFIG.data.build().test
    with tf.device("CPU:0"):
        model = tf.saved_model.load(str(tmp_path / "exported" / "global" / "1"))
        found = model.signatures["serving_default"](images=tf.constant(test.x))["class_id"]
    # One sample may be classified otherwise on a processor.
    assert abs(np.sum(found.numpy() == test.y) - exported[0].accuracy * len(test) / 100) < 1.5


def test_two_actors_of_ray_share_the_card(is_gpu, contexts):
    pytest.importorskip("ray")
    from tests.gpu.test_methods import differences, two_rounds
    from tests.support import process

    own = {"ray_actors": 2, "ray_cpus": 1, "ray_gpus": 0.5 if is_gpu else 0.0}
    context = runtime.create("ray", **own).create_context()
    try:
        found, _ = two_rounds(context, process("fedgela"))
    finally:
        context.close()
    expected, _ = two_rounds(contexts["processor"], process("fedgela"))
    assert max(differences(found, expected)) < 1e-3


def script(text):
    """Runs a program; what it prints, by lines."""
    command = [sys.executable, "-c", text]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env=processes.environment()
    ).stdout.splitlines()


def test_several_clients_at_a_time_give_the_numbers_of_one_at_a_time(is_gpu):
    """In processes of their own, because a GPU is divided before its first use."""
    code = """
import sys, zlib
import tff_pcdd
import numpy as np
import tensorflow as tf
from benchmarks.workloads import Rounds, Workload
from tff_pcdd import federated, runtime
from tff_pcdd.runtime import _tf_private, inprocess, logical_devices
_tf_private.require_determinism(True)
if IS_GPU:
    config = runtime.create("inprocess", clients_per_gpu=COUNT, gpu_memory=8.0)
    context = config.create_context()
else:
    logical_devices.divide(COUNT, kind="CPU")
    context = inprocess.create_context(devices=[f"CPU:{n}" for n in range(COUNT)],
                                       client_parallelism=COUNT)
context.deterministic = True
spec, clients = Workload("simple_cnn", 5, 16, 8, 2).build()
with runtime.installed(context):
    rounds = Rounds(federated.build_process(spec), clients)
    rounds.next()
    rounds.next()
print(len(tf.config.list_logical_devices("GPU" if IS_GPU else "CPU")))
weights = b"".join(np.asarray(w).tobytes() for w in rounds.state.weights["trainable"])
print(zlib.crc32(weights))
context.close()
"""
    one, three = (
        script(code.replace("COUNT", number).replace("IS_GPU", str(is_gpu))) for number in "13"
    )
    assert (one[-2], three[-2]) == ("1", "3")
    assert one[-1] == three[-1]


def test_too_little_memory_is_said_in_a_line_that_says_what_to_change(is_gpu, tmp_path):
    if not is_gpu:
        pytest.skip("a processor's memory cannot be limited; tests/cli/test_outputs.py has errors")
    flags = "--model=resnet18 --partition=iid --num_clients=1 --batch_size=1200 --rounds=1"
    flags += f" --gpu_memory=0.3 --compile=off --output_dir={tmp_path / 'run'}"
    command = [sys.executable, "-m", "tasks.train", *flags.split()]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=processes.ROOT, env=environment
    )
    assert done.returncode == 1
    error = done.stderr.splitlines()[-1]
    assert error.startswith("train: error: there is not enough memory on the GPU; lower --batch")


def test_programs_take_memory_as_they_need_it(is_gpu):
    if not is_gpu:
        pytest.skip("only GPUs have memory of their own")
    code = """
import tff_pcdd
import tensorflow as tf
from tff_pcdd import runtime
runtime.use("inprocess")
x = tf.ones([1024, 1024])
print(float(tf.reduce_sum(x @ x)))
import subprocess
print(subprocess.run(["nvidia-smi", "--query-gpu=memory.used,memory.total",
                      "--format=csv,noheader,nounits"], capture_output=True, text=True).stdout)
"""
    lines = [line for line in script(code) if line.strip()]
    used, total = map(int, lines[1].split(","))
    assert used < total / 4

"""What `tff-pcdd doctor` says of GPUs, from made-up answers of TensorFlow and NVIDIA's driver."""

import ctypes
import importlib.metadata
import subprocess

import pytest
import tensorflow as tf

from tff_pcdd import machine, stack
from tff_pcdd.cli import gpu_check
from tff_pcdd.cli.gpu_check import OK, OPTIONAL, WRONG, Finding

GIB = 2**30
BUILD = {
    "is_cuda_build": True,
    "cuda_version": "12.5.1",
    "cudnn_version": "9",
    "cuda_compute_capabilities": ["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"],
}
H100 = {"device_name": "NVIDIA H100", "compute_capability": (9, 0)}


@pytest.fixture
def gpus(monkeypatch):
    """Sets the GPUs that TensorFlow sees, by their details, and what NVIDIA's driver says."""
    for variable in ("CUDA_VISIBLE_DEVICES", "TF_FORCE_GPU_ALLOW_GROWTH"):
        monkeypatch.delenv(variable, raising=False)

    def make(*details, driver=True, cuda=(12, 8), build=BUILD, mode="Default"):
        answers = {"name": "NVIDIA H100", "driver_version": "570.86", "compute_mode": mode,
                   "memory.used": "1024 MiB"}  # fmt: skip
        monkeypatch.setattr(tf.sysconfig, "get_build_info", lambda: build)
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [*details])
        monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda device: device)
        monkeypatch.setattr(machine, "has_gpu_driver", lambda: driver)
        monkeypatch.setattr(machine, "cuda_of_driver", lambda: cuda)
        monkeypatch.setattr(machine, "gpu_memory", lambda: [80 * GIB] * len(details))
        monkeypatch.setattr(
            machine, "ask_driver", lambda *names: [{name: answers[name] for name in names}]
        )
        monkeypatch.setattr(gpu_check, "missing_libraries", list)
        # Other tests of the same process may have switched it off.
        enabled = "tensor_float_32_execution_enabled"
        monkeypatch.setattr(tf.config.experimental, enabled, lambda: True)

    return make


def test_without_a_gpu_it_is_one_line(gpus):
    gpus(driver=False)
    assert [*gpu_check.findings()] == [Finding(OK, "no GPU; TensorFlow computes on the processor")]


def test_a_gpu_on_which_all_works(gpus, monkeypatch):
    gpus(H100)
    monkeypatch.setattr(gpu_check, "compilation", lambda device: Finding(OK, device))
    lines = [*gpu_check.findings()]
    # The driver compiles what there is no machine code for.
    assert lines.pop(0) == Finding(
        OPTIONAL,
        "GPU:0 is NVIDIA H100, 80.0 GiB of memory, compute capability 9.0, which TensorFlow has "
        "no machine code for; the driver compiles it at the first use, which takes minutes once",
    )
    assert {state for state, _ in lines} == {OK}
    assert [text for _, text in lines] == [
        "NVIDIA's driver 570.86 is for CUDA up to 12.8; TensorFlow was built with CUDA 12.5.1 and "
        "cuDNN 9",
        "programs can share a GPU: each takes memory as it needs it, at most --gpu_memory; in use "
        "now: 1024 MiB",
        "TF32 is on by TensorFlow's default; --precision=float32 computes without it, "
        "--precision=tf32 with it",
        "/device:GPU:0",
    ]


@pytest.mark.parametrize(
    ("capability", "state"),
    [((8, 0), OK), ((8, 6), OK), ((9, 0), OPTIONAL), ((12, 0), OPTIONAL), ((5, 2), WRONG)],
)
def test_machine_code_of_the_same_major_version_runs(capability, state):
    found = gpu_check.card(
        "GPU:1", {"compute_capability": capability}, None, BUILD["cuda_compute_capabilities"]
    )
    assert found.state == state
    assert found.text.startswith(f"GPU:1 is a GPU, compute capability {capability[0]}.")
    if state == WRONG:
        assert found.text.endswith("and TensorFlow needs 6.0; compute on --devices=CPU:0")


def test_a_build_that_does_not_say_for_what_it_is_is_not_doubted():
    assert gpu_check.card("GPU:0", H100, None, ()).state == OK


def test_why_tensorflow_does_not_see_a_gpu(gpus, monkeypatch):
    gpus(build={"is_cuda_build": False})
    start = "there is a GPU (NVIDIA H100), and TensorFlow does not see it; "
    mend = 'make install GPU=1, or pip install "tff_pcdd[gpu]"'
    assert [*gpu_check.findings()] == [
        Finding(
            WRONG, f"{start}this is its build for processors; install the build with CUDA: {mend}"
        )
    ]
    gpus()
    monkeypatch.setattr(gpu_check, "missing_libraries", lambda: ["nvidia-cudnn-cu12", "another"])
    assert gpu_check.unseen(BUILD).text == (
        f"{start}nvidia-cudnn-cu12, another are missing: {mend}"
    )
    gpus(cuda=(11, 4))
    found = gpu_check.unseen(BUILD)
    assert found.state == WRONG
    assert found.text.startswith("NVIDIA's driver 570.86 is for CUDA up to 11.4; TensorFlow was")
    assert found.text.endswith("; install a more recent driver")
    gpus()
    assert "TF_CPP_MIN_LOG_LEVEL=0 python -c" in gpu_check.unseen(BUILD).text
    for value in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        hidden = f"CUDA_VISIBLE_DEVICES={value} hides the GPUs; to use them: unset it"
        assert gpu_check.unseen(BUILD) == Finding(OPTIONAL, hidden)


def test_missing_libraries_are_those_of_tensorflows_own_extra(monkeypatch):
    required = ["numpy>=1.26", 'nvidia-cudnn-cu12<10.0,>=9.3; extra == "and-cuda"',
                'nvidia-nccl-cu12<3.0; extra == "and-cuda"']  # fmt: skip
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: required)
    monkeypatch.setattr(stack, "version", {"nvidia-nccl-cu12": "2.27.7"}.get)
    assert gpu_check.missing_libraries() == ["nvidia-cudnn-cu12"]

    def no_package(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", no_package)
    assert gpu_check.missing_libraries() == []


def test_whether_programs_can_share_a_gpu(gpus, monkeypatch):
    gpus(mode="Exclusive_Process")
    found = gpu_check.sharing(machine.ask_driver("name", "memory.used", "compute_mode"))
    assert found == Finding(
        OPTIONAL,
        "NVIDIA H100 is in compute mode Exclusive_Process, so one program at a time can use it; to "
        "let programs share it: sudo nvidia-smi -c DEFAULT",
    )
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false")
    found = gpu_check.sharing([])
    assert found.state == OPTIONAL
    assert found.text.startswith("TF_FORCE_GPU_ALLOW_GROWTH: a program takes all memory of a GPU; ")


def test_older_gpus_have_no_tf32():
    found = gpu_check.tensor_float_32([(9, 0), (7, 5)])
    assert found.state == OPTIONAL
    assert "neither --precision=tf32 nor bfloat16 is faster" in found.text


def test_a_tiny_step_is_compiled(monkeypatch):
    assert gpu_check.compilation("/device:CPU:0").state == OK
    monkeypatch.setattr(gpu_check, "missing_libraries", lambda: ["nvidia-cuda-nvcc-cu12"])

    def fail(*_args, **_options):
        raise tf.errors.InternalError(None, None, "\nlibdevice not found\nat all")

    monkeypatch.setattr(tf.nn, "conv2d", fail)
    found = gpu_check.compilation("/device:CPU:0")
    assert found.state == WRONG
    assert "\n" not in found.text
    assert found.text.startswith("XLA does not compile for GPUs: ")
    assert found.text.endswith(
        'install nvidia-cuda-nvcc-cu12: make install GPU=1, or pip install "tff_pcdd[gpu]"'
    )
    monkeypatch.setattr(gpu_check, "missing_libraries", list)
    assert gpu_check.compilation("/device:CPU:0").text.endswith("; train with --compile=off")


def test_nvidia_smi_is_asked_by_its_own_names(monkeypatch):
    asked = []

    def run(command, **options):
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, "NVIDIA H100, 81559 MiB\nbroken\n", "")

    monkeypatch.setattr(subprocess, "run", run)
    found = machine.ask_driver("name", "memory.total")
    assert found == [{"name": "NVIDIA H100", "memory.total": "81559 MiB"}]
    assert asked[0] == ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]

    def missing(command, **options):
        raise FileNotFoundError(command[0])

    monkeypatch.setattr(subprocess, "run", missing)
    assert machine.ask_driver("name") == []


def test_the_cuda_version_of_the_driver(monkeypatch):
    class Driver:
        status = 0

        def __init__(self, name):
            pass

        def cuDriverGetVersion(self, number):
            number._obj.value = 12080
            return self.status

    monkeypatch.setattr(ctypes, "CDLL", Driver)
    assert machine.cuda_of_driver() == (12, 8)
    Driver.status = 3
    assert machine.cuda_of_driver() is None

    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert machine.cuda_of_driver() is None

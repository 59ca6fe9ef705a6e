"""The GPUs of this machine, and which precisions it computes fast in."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

from etils import epy

with epy.lazy_imports():
    import tensorflow as tf

# Either of them makes convolutions and matrix products in bfloat16 faster than in float32.
_CPU_FLAGS = frozenset({"amx_bf16", "avx512_bf16"})
CPUINFO = Path("/proc/cpuinfo")

# Devices of NVIDIA's driver, on Linux and in the Linux subsystem of Windows.
_GPU_DRIVERS = ("/dev/nvidiactl", "/dev/dxg")
_GPU_CAPABILITY = (8, 0)
_CUDA = "libcuda.so.1"


def slow_bfloat16(*, gpus: bool = True) -> str | None:
    """Why this machine does not compute fast in bfloat16; None if it does.

    TensorFlow is imported only where there may be a GPU.

    Args:
        gpus: whether the GPUs compute, if there are any.
    """
    capabilities = _gpu_capabilities() if gpus else []
    if capabilities:
        slow = [found for found in capabilities if found < _GPU_CAPABILITY]
        if not slow:
            return None
        found, needed = (".".join(map(str, pair)) for pair in (slow[0], _GPU_CAPABILITY))
        return f"a GPU has compute capability {found}, and {needed} is needed"
    if bfloat16_instructions():
        return None
    return "the processor has neither AMX-BF16 nor AVX512-BF16"


def has_gpu() -> bool:
    """Whether TensorFlow uses a GPU; it is imported only where there may be one."""
    return bool(_gpu_capabilities())


def bfloat16_instructions() -> list[str]:
    """The processor's instruction sets that make bfloat16 fast, as the kernel names them."""
    return sorted(cpu_flags() & _CPU_FLAGS)


def cpu_flags() -> frozenset[str]:
    """The instruction sets of the first processor; none if the system does not tell."""
    flags = (line.split() for line in lines_of(CPUINFO) if line.startswith("flags"))
    return frozenset(next(flags, ()))


def has_gpu_driver() -> bool:
    """Whether the system has a driver for NVIDIA's GPUs."""
    return any(map(os.path.exists, _GPU_DRIVERS))


def ask_driver(*fields: str) -> list[dict[str, str]]:
    """What nvidia-smi says of each GPU of this machine; empty if it does not answer.

    Args:
        *fields: as `nvidia-smi --help-query-gpu` names them.
    """
    query = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    rows = [line.split(", ") for line in answer.splitlines()]
    return [dict(zip(fields, row, strict=True)) for row in rows if len(row) == len(fields)]


def cuda_of_driver() -> tuple[int, int] | None:
    """The latest version of CUDA that NVIDIA's driver knows; None without a driver."""
    number = ctypes.c_int()
    try:
        if ctypes.CDLL(_CUDA).cuDriverGetVersion(ctypes.byref(number)):
            return None
    except OSError:
        return None
    return number.value // 1000, number.value % 1000 // 10


def gpu_memory() -> list[int]:
    """The bytes of memory of each GPU that this process sees, found without TensorFlow.

    Empty if NVIDIA's driver does not tell.
    """
    try:
        cuda = ctypes.CDLL(_CUDA)
    except OSError:
        return []
    count, sizes = ctypes.c_int(), []
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return []
    for number in range(count.value):
        device, size = ctypes.c_int(), ctypes.c_size_t()
        if cuda.cuDeviceGet(ctypes.byref(device), number):
            return []
        if cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device):
            return []
        sizes.append(size.value)
    return sizes


def _gpu_capabilities() -> list[tuple[int, int]]:
    """The compute capabilities of the GPUs that TensorFlow uses."""
    if not has_gpu_driver():
        return []
    details = map(tf.config.experimental.get_device_details, tf.config.get_visible_devices("GPU"))
    return [each.get("compute_capability", (0, 0)) for each in details]


def lines_of(path: Path) -> list[str]:
    """The lines of a file of the system; none if it cannot be read."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []

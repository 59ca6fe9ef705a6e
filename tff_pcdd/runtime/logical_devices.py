"""Divides GPUs into logical devices, on each of which a client can train at the same time.

Operations of one logical device run one after the other; those of several run side by side.
"""

from __future__ import annotations

import tensorflow as tf

from tff_pcdd import machine
from tff_pcdd.errors import SettingError

# The share of a GPU's memory that its logical devices may take together; the rest is for CUDA.
_SHARE = 0.9
_UNLIMITED = tf.config.LogicalDeviceConfiguration()


def divide(number: int, memory: float | None = None, *, kind: str = "GPU") -> None:
    """Divides all devices of a kind. Has to be called before TensorFlow's first operation.

    Args:
        number: of logical devices on each GPU.
        memory: GiB of each GPU that they may take together; by default nearly all that it has.
        kind: "CPU" in tests, where no memory is divided.

    Raises:
        SettingError: there is no such device, or TensorFlow already uses them undivided, or the
            memory of a GPU is too small or unknown.
    """
    physical = tf.config.list_physical_devices(kind)
    if not physical:
        raise _refused(number, memory, "TensorFlow sees no GPU")
    limits = [None] * len(physical) if kind == "CPU" else _limits(number, memory, len(physical))
    for device, limit in zip(physical, limits, strict=True):
        wanted = [tf.config.LogicalDeviceConfiguration(memory_limit=limit)] * number
        found = tf.config.get_logical_device_configuration(device) or []
        if [each.memory_limit for each in found] == [each.memory_limit for each in wanted]:
            continue
        try:
            tf.config.set_logical_device_configuration(device, wanted)
        except RuntimeError:
            reason = "this process has used the GPUs before; use the same value, or a new process"
            raise _refused(number, memory, reason) from None


def memory_limit(device: str) -> int | None:
    """The bytes that a logical device such as "/device:GPU:0" may take; None if it has no limit."""
    kind = device.split(":")[-2]
    logical = [
        each.memory_limit
        for physical in tf.config.get_visible_devices(kind)
        for each in tf.config.get_logical_device_configuration(physical) or [_UNLIMITED]
    ]
    limit = logical[int(device.split(":")[-1])]
    return None if limit is None else int(limit) << 20


def _limits(number: int, memory: float | None, count: int) -> list[int]:
    """The MiB of each logical device, by GPU."""
    sizes = machine.gpu_memory()
    if memory is None and len(sizes) != count:
        reason = "the memory of the GPUs is unknown; set gpu_memory"
        raise SettingError("clients_per_gpu", number, reason)
    sizes = sizes if len(sizes) == count else [1 << 60] * count
    limits = []
    for size in sizes:
        total = _SHARE * size if memory is None else memory * 2**30
        if total > size:
            reason = f"a GPU has only {size / 2**30:.1f} GiB"
            raise SettingError("gpu_memory", memory, reason)
        limits.append(int(total / number / 2**20))
    return limits


def _refused(number: int, memory: float | None, reason: str) -> SettingError:
    if number == 1:
        return SettingError("gpu_memory", memory, reason)
    return SettingError("clients_per_gpu", number, reason)

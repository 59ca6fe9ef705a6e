"""The runtime of the programs that measure on a GPU, or on the processor in its place."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tff_pcdd import machine, runtime
from tff_pcdd.runtime import inprocess, logical_devices


def create_context(at_a_time: int) -> Any:
    """A context in which so many clients train at the same time on each GPU.

    Without a GPU, the processor is divided in the same way.
    """
    if machine.has_gpu():
        return runtime.create("inprocess", clients_per_gpu=at_a_time).create_context()
    logical_devices.divide(at_a_time, kind="CPU")
    names = [f"CPU:{number}" for number in range(at_a_time)]
    return inprocess.create_context(devices=names, client_parallelism=at_a_time)


def device() -> str:
    """The first device that computes."""
    return "/device:GPU:0" if tf.config.list_logical_devices("GPU") else "/device:CPU:0"

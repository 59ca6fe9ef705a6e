"""GPUs are divided into logical devices, with a made-up driver in the place of NVIDIA's."""

import ctypes
import os

import pytest
import tensorflow as tf

from tests.data.refusals import refuses
from tff_pcdd import machine, runtime
from tff_pcdd.runtime import logical_devices

GIB = 2**30


@pytest.fixture
def driver(monkeypatch):
    """Sets the bytes of memory of the GPUs; None for a machine without a driver."""

    def make(*sizes, fails=""):
        class Driver:
            def __init__(self, name):
                if sizes == (None,):
                    raise OSError(f"{name}: cannot open shared object file")

            def __getattr__(self, function):
                def call(*arguments):
                    values = {
                        "cuDeviceGetCount": lambda count: len(sizes),
                        "cuDeviceGet": lambda device, number: number,
                        "cuDeviceTotalMem_v2": lambda size, device: sizes[device.value],
                    }
                    if function in values:
                        arguments[0]._obj.value = values[function](*arguments)
                    return 999 if function == fails else 0

                return call

        monkeypatch.setattr(ctypes, "CDLL", Driver)

    return make


@pytest.fixture
def gpus(monkeypatch):
    """Sets the number of GPUs that TensorFlow sees; returns what they are divided into."""
    divided = {}

    def make(number):
        names = [f"gpu{n}" for n in range(number)]
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: names)
        monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: names)
        monkeypatch.setattr(tf.config, "get_logical_device_configuration", divided.get)
        monkeypatch.setattr(tf.config, "set_logical_device_configuration", divided.__setitem__)
        return divided

    return make


def limits(divided):
    return {gpu: [each.memory_limit for each in parts] for gpu, parts in divided.items()}


def test_memory_of_gpus_is_what_the_driver_says(driver):
    driver(80 * GIB, 24 * GIB)
    assert machine.gpu_memory() == [80 * GIB, 24 * GIB]
    for function in ("cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceTotalMem_v2"):
        driver(80 * GIB, fails=function)
        assert machine.gpu_memory() == []
    driver(None)
    assert machine.gpu_memory() == []


def test_parts_of_a_gpu_are_equal_and_leave_memory_to_cuda(driver, gpus):
    driver(80 * GIB, 40 * GIB)
    divided = gpus(2)
    logical_devices.divide(4)
    # Nine tenths, in MiB.
    assert limits(divided) == {"gpu0": [18 * 1024] * 4, "gpu1": [9 * 1024] * 4}
    logical_devices.divide(2, 10.0)
    assert limits(divided) == {"gpu0": [5 * 1024] * 2, "gpu1": [5 * 1024] * 2}
    # Without a driver that tells, a given size is taken as it is.
    driver(None)
    logical_devices.divide(1, 0.5)
    assert limits(divided) == {"gpu0": [512], "gpu1": [512]}


def test_gpus_that_cannot_be_divided(driver, gpus, monkeypatch):
    gpus(0)
    with refuses("clients_per_gpu", "TensorFlow sees no GPU"):
        logical_devices.divide(2)
    with refuses("gpu_memory", "TensorFlow sees no GPU"):
        logical_devices.divide(1, 4.0)
    driver(None)
    gpus(1)
    with refuses("clients_per_gpu", "the memory of the GPUs is unknown; set gpu_memory"):
        logical_devices.divide(2)
    driver(16 * GIB)
    with refuses("gpu_memory", "a GPU has only 16.0 GiB"):
        logical_devices.divide(2, 17.0)

    def used(device, parts):
        raise RuntimeError("Virtual devices cannot be modified after being initialized")

    logical_devices.divide(2)
    monkeypatch.setattr(tf.config, "set_logical_device_configuration", used)
    logical_devices.divide(2)  # as before
    with refuses("clients_per_gpu", "this process has used the GPUs before"):
        logical_devices.divide(3)


def test_a_runtime_divides_the_gpus_before_anything_is_computed(monkeypatch):
    calls = []
    monkeypatch.setattr(logical_devices, "divide", lambda *arguments: calls.append(arguments))
    runtime.create("inprocess").prepare()
    runtime.create("inprocess", gpu_memory=4.0).prepare()
    runtime.create("inprocess", clients_per_gpu=3).create_context().close()
    assert calls == [(1, 4.0), (3, None)]


@pytest.mark.parametrize("name", ["inprocess", "tff"])
def test_gpu_memory_is_taken_as_it_is_needed(name, monkeypatch):
    variable = "TF_FORCE_GPU_ALLOW_GROWTH"
    monkeypatch.delenv(variable, raising=False)
    runtime.create(name).prepare()
    assert os.environ[variable] == "true"
    monkeypatch.setenv(variable, "false")
    runtime.create(name).prepare()
    assert os.environ[variable] == "false"


def test_the_memory_of_a_logical_device_is_told(driver, gpus, monkeypatch):
    gpus(2)
    assert logical_devices.memory_limit("/device:GPU:1") is None
    driver(80 * GIB, 40 * GIB)
    logical_devices.divide(2)
    found = [logical_devices.memory_limit(f"/device:GPU:{n}") for n in range(4)]
    assert found == [36 * GIB, 36 * GIB, 18 * GIB, 18 * GIB]
    # Logical devices are those of the GPUs that the program lets TensorFlow see.
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: ["gpu1"])
    assert logical_devices.memory_limit("/device:GPU:0") == 18 * GIB

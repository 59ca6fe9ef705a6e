"""The device of the tests marked `gpu`: a GPU, or with `--gpu-stand-in` a second logical CPU."""

import functools
import os

import pytest

from tff_pcdd import machine

# Several processes may share the GPU.
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

STAND_IN = "CPU:1"
# Of layers and losses, also if XLA has compiled them.
_PRODUCTS = ("MatMul", "Conv2D", "CudnnRNN", "XlaLaunch", "XlaRun")


def pytest_collection_modifyitems(config, items):
    """Marks the tests of this folder, and skips them where there is no GPU."""
    here = [item for item in items if item.path.parent.name == "gpu"]
    missing = None
    if not config.getoption("gpu_stand_in") and here and not machine.has_gpu():
        missing = pytest.mark.skip(reason="TensorFlow sees no GPU; see docs/how-to/gpu.md")
    for item in here:
        item.add_marker(pytest.mark.gpu)
        if missing:
            item.add_marker(missing)


@pytest.fixture(scope="session")
def is_gpu(request):
    """Whether the device is a GPU."""
    return not request.config.getoption("gpu_stand_in")


@pytest.fixture(scope="session")
def card(is_gpu):
    """The name of the device."""
    return "GPU:0" if is_gpu else STAND_IN


@pytest.fixture(scope="session")
def contexts(card, is_gpu):
    """Contexts of the runtime `inprocess`: `card`, `again` (deterministic) and `processor`."""
    from tff_pcdd.runtime import _computations, inprocess

    found = {
        name: inprocess.create_context(client_parallelism=1, devices=[device])
        for name, device in (("card", card), ("again", card), ("processor", "CPU:0"))
    }
    found["again"].deterministic = True
    if not is_gpu:
        # What is translated for GPUs is translated otherwise than for processors.
        translate = functools.partial(_computations.translate, on_host=False)
        for name in ("card", "again"):
            found[name]._computations = _computations.Computations(translate)
    yield found
    for context in found.values():
        context.close()


@pytest.fixture
def placed():
    """Calls a function for the first time.

    Returns its result, and the device, the operation and the name of each product.
    """
    from tensorflow.core.framework import types_pb2
    from tensorflow.python.eager import context as eager

    def call(function):
        eager.context().enable_graph_collection()
        eager.context().export_run_metadata()  # What was collected before is dropped.
        try:
            result = function()
            metadata = eager.context().export_run_metadata()
        finally:
            eager.context().disable_graph_collection()
        return result, {
            (node.device.partition("device:")[2], node.op, node.name)
            for graph in metadata.function_graphs
            for partition in graph.partition_graphs
            for node in partition.node
            if any(name in node.op for name in _PRODUCTS)
            # CCVR and FedPAC decompose small matrices in float64 on the processor.
            and node.attr["T"].type != types_pb2.DT_DOUBLE
        }

    return call

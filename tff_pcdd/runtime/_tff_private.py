"""All names that tff_pcdd imports from TFF although they are not part of its public API.

If a future TFF release moves them, only this file has to change, besides the names of modules that
`tff_pcdd.stack` replaces.
"""

import asyncio

import tensorflow_federated as tff

# The protocol between a program and its workers.
from tensorflow_federated.proto.v0 import executor_pb2_grpc
from tensorflow_federated.proto.v0.computation_pb2 import Computation as ComputationProto
from tensorflow_federated.proto.v0.computation_pb2 import TensorFlow as TensorFlowProto

# The part of the compiler that says sums, broadcasts and the like by the intrinsics of runtimes.
from tensorflow_federated.python.core.environments.tensorflow_backend import (
    tensorflow_tree_transformations as tree_transformations,
)

# The number of clients in an argument.
from tensorflow_federated.python.core.impl.executors.cardinalities_utils import infer_cardinalities

# Conversions between data sets and TFF types.
from tensorflow_federated.python.core.impl.types.type_conversions import type_to_tf_structure
from tensorflow_federated.python.core.impl.utils.tensorflow_utils import (
    coerce_dataset_elements_to_tff_type_spec as coerce_dataset,
)
from tensorflow_federated.python.core.impl.utils.tensorflow_utils import (
    make_data_set_from_elements as make_dataset,
)

__all__ = [
    "ComputationProto",
    "TensorFlowProto",
    "coerce_dataset",
    "executor_pb2_grpc",
    "infer_cardinalities",
    "make_dataset",
    "tree_transformations",
    "type_to_tf_structure",
]


def end_event_loop(context: tff.framework.SyncExecutionContext) -> None:
    """Ends the thread with an event loop that a context of TFF has started.

    It would never end: the thread refers to the object whose deletion is to end it. Calls that are
    running have to end by themselves, which is waited for.
    """
    runner = context._async_runner
    loop, thread = runner._event_loop, runner._thread
    # After a fork, the thread is only in the parent process.
    if loop.is_closed() or not thread.is_alive():
        return

    async def wait_for_calls():
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*calls, return_exceptions=True)

    asyncio.run_coroutine_threadsafe(wait_for_calls(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    # What would be done again when the object is deleted.
    runner._finalizer = lambda *_: None

"""All names that tff_pcdd imports from TFF although they are not part of its public API.

If a future TFF release moves them, only this file has to change, besides the names of modules that
`tff_pcdd.stack` replaces.
"""

# The protocol between a program and its workers.
from tensorflow_federated.proto.v0 import executor_pb2_grpc
from tensorflow_federated.proto.v0.computation_pb2 import Computation as ComputationProto
from tensorflow_federated.proto.v0.computation_pb2 import TensorFlow as TensorFlowProto

# The part of the compiler that says sums, broadcasts and the like by the intrinsics of runtimes.
from tensorflow_federated.python.core.environments.tensorflow_backend import (
    tensorflow_tree_transformations as tree_transformations,
)

# The interfaces of executors and of their values; only the executor factory is public.
from tensorflow_federated.python.core.impl.executors.executor_base import Executor
from tensorflow_federated.python.core.impl.executors.executor_value_base import ExecutorValue

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
    "Executor",
    "ExecutorValue",
    "TensorFlowProto",
    "coerce_dataset",
    "executor_pb2_grpc",
    "make_dataset",
    "tree_transformations",
    "type_to_tf_structure",
]

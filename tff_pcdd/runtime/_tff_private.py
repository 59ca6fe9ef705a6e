"""Every name that tff_pcdd takes from TFF without TFF publishing it.

TFF's next release may move them; then this is the one file to change.
"""

from tensorflow_federated.proto.v0.computation_pb2 import Computation as ComputationProto
from tensorflow_federated.proto.v0.computation_pb2 import TensorFlow as TensorFlowProto

# The interfaces of an executor and of what it holds. TFF publishes their factory, not them.
from tensorflow_federated.python.core.impl.executors.executor_base import Executor
from tensorflow_federated.python.core.impl.executors.executor_value_base import ExecutorValue

# Data sets, with TFF's reading of their elements' types.
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
    "make_dataset",
    "type_to_tf_structure",
]

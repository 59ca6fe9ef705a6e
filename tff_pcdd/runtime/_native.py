"""Compiles computations to the form in which all runtimes execute them."""

from collections.abc import Iterator

import tensorflow as tf
import tensorflow_federated as tff

from tff_pcdd.runtime import _tff_private

# What TFF's compiler makes of a batch normalization and the activation behind it.
_FUSED = b"_FusedBatchNormEx"


def compile_to_native(
    computation: tff.framework.ConcreteComputation,
) -> tff.framework.ConcreteComputation:
    """Compiles a computation to TFF's native form.

    No executor supports secure aggregation. It is computed in the clear, with its usual bounds and
    moduli.
    """
    return tff.backends.native.desugar_and_transform_to_native(
        tff.backends.test.replace_secure_intrinsics_with_bodies(computation)
    )


def compile_for_import(
    computation: tff.framework.ConcreteComputation,
) -> tff.framework.ConcreteComputation:
    """As `compile_to_native`, but TensorFlow can import all graphs, which TFF's worker need not."""
    compiled = compile_to_native(computation)
    proto = tff.framework.ConcreteComputation.get_proto(compiled)
    if _FUSED in proto.SerializeToString() and not all(map(_can_be_imported, _graphs(proto))):
        return _without_fusion(computation)
    return compiled


def _graphs(proto: _tff_private.ComputationProto) -> Iterator[tf.compat.v1.GraphDef]:
    """The graphs of a computation and of those inside it."""
    if proto.DESCRIPTOR == _tff_private.TensorFlowProto.DESCRIPTOR:
        graph_def = tf.compat.v1.GraphDef()
        proto.graph_def.Unpack(graph_def)
        yield graph_def
        return
    for field, value in proto.ListFields():
        if field.message_type is not None:
            for message in [value] if hasattr(value, "DESCRIPTOR") else value:
                yield from _graphs(message)


def _can_be_imported(graph_def: tf.compat.v1.GraphDef) -> bool:
    """Whether TensorFlow imports a graph: of what it has fused, only multiples of 4 channels."""
    try:
        with tf.Graph().as_default():
            tf.graph_util.import_graph_def(graph_def, name="")
    except ValueError:
        return False
    return True


def _without_fusion(
    computation: tff.framework.ConcreteComputation,
) -> tff.framework.ConcreteComputation:
    """As `compile_to_native`, whose options these are, but operations are not fused."""
    config = tf.compat.v1.ConfigProto()
    rewrites = config.graph_options.rewrite_options
    rewrites.memory_optimization = rewrites.AGGRESSIVE
    rewrites.constant_folding = rewrites.AGGRESSIVE
    rewrites.arithmetic_optimization = rewrites.AGGRESSIVE
    rewrites.loop_optimization = rewrites.AGGRESSIVE
    rewrites.function_optimization = rewrites.AGGRESSIVE
    rewrites.remapping = rewrites.OFF
    computation = tff.backends.test.replace_secure_intrinsics_with_bodies(computation)
    block, _ = _tff_private.tree_transformations.replace_intrinsics_with_bodies(
        computation.to_building_block()
    )
    desugared = tff.framework.deserialize_computation(block.proto)
    return tff.backends.native.transform_to_native_form(desugared, grappler_config=config)

"""Compiles computations to the form in which all runtimes execute them."""

import tensorflow as tf
import tensorflow_federated as tff

from tff_pcdd.runtime import _tff_private


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


def without_intrinsics(
    computation: tff.framework.ConcreteComputation,
) -> tff.framework.ComputationBuildingBlock:
    """A computation in which sums and means are what TFF computes them from."""
    computation = tff.backends.test.replace_secure_intrinsics_with_bodies(computation)
    block, _ = _tff_private.tree_transformations.replace_intrinsics_with_bodies(
        computation.to_building_block()
    )
    return block


def compile_for_import(
    computation: tff.framework.ConcreteComputation,
) -> tff.framework.ConcreteComputation:
    """As `compile_to_native`, whose options these are, but operations are not fused.

    Of a batch normalization and the activation behind it, TFF's compiler makes an operation that
    TensorFlow imports only for multiples of 4 channels. It fuses operations itself when it runs
    them. TFF's worker imports no graphs.
    """
    config = tf.compat.v1.ConfigProto()
    rewrites = config.graph_options.rewrite_options
    rewrites.memory_optimization = rewrites.AGGRESSIVE
    rewrites.constant_folding = rewrites.AGGRESSIVE
    rewrites.arithmetic_optimization = rewrites.AGGRESSIVE
    rewrites.loop_optimization = rewrites.AGGRESSIVE
    rewrites.function_optimization = rewrites.AGGRESSIVE
    rewrites.remapping = rewrites.OFF
    desugared = tff.framework.deserialize_computation(without_intrinsics(computation).proto)
    return tff.backends.native.transform_to_native_form(desugared, grappler_config=config)

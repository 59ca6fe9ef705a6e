"""Compiles computations to the form in which all runtimes execute them."""

import tensorflow_federated as tff


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

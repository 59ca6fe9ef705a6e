"""Gradients at weights other than the current ones, and losses with given gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from etils import epy

from tff_pcdd.methods.network import assign, read

with epy.lazy_imports():
    import tensorflow as tf


def gradients_of(
    loss: Callable[[], tf.Tensor], variables: Sequence[tf.Variable]
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """The value of a loss, a scalar, and its gradients; gradients flow through neither.

    Args:
        loss: computes the loss with the variables as they are.
        variables: those with respect to which the loss is differentiated; the gradient of a
            variable without influence is 0.
    """
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
        value = loss()
    found = tape.gradient(value, variables, unconnected_gradients="zero")
    # Those of embeddings are lists of rows, whose norm is another one where rows occur twice.
    gradients = map(tf.convert_to_tensor, found)
    return tf.stop_gradient(value), [tf.stop_gradient(gradient) for gradient in gradients]


def gradients_at(
    values: Sequence[tf.Tensor],
    loss: Callable[[], tf.Tensor],
    variables: Sequence[tf.Variable],
    unchanged: Sequence[tf.Variable] = (),
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Like `gradients_of`, with other values assigned to the variables temporarily.

    Variables that are to stay `unchanged`, such as the statistics of normalization layers, get
    their own values again as well.
    """
    own = read((*variables, *unchanged))
    assign(variables, values)
    result = gradients_of(loss, variables)
    assign((*variables, *unchanged), own)
    return result


def with_gradients(
    value: tf.Tensor, variables: Sequence[tf.Variable], gradients: Sequence[tf.Tensor]
) -> tf.Tensor:
    """A scalar with the given value and the given gradients with respect to the variables."""
    zeros = [
        tf.reduce_sum(gradient * (variable - tf.stop_gradient(variable)))
        for variable, gradient in zip(variables, gradients, strict=True)
    ]
    return tf.stop_gradient(value) + tf.add_n(zeros)

"""Values of individual clients in sums over the cohort: each client fills its own row."""

from __future__ import annotations

from collections.abc import Mapping

from etils import epy

with epy.lazy_imports():
    import tensorflow as tf


def in_own_row(
    values: Mapping[str, tf.Tensor], cohort_index: tf.Tensor | int, cohort_size: int
) -> dict[str, tf.Tensor]:
    """Tables [cohort_size, …] that are zero except for the client's row, which has its values.

    The sum over the cohort has the values of all clients. A client has to send only its own row;
    see `Upload.sent`.
    """
    row = tf.one_hot(cohort_index, cohort_size)
    return {
        name: tf.reshape(row, [cohort_size] + [1] * value.shape.rank) * value
        for name, value in values.items()
    }

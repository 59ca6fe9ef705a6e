"""The losses of FedMR and FedLoGe as Keras layers.

Every layer returns its weighted loss, a float32 scalar, and registers it with `add_loss`. If the
layer is part of the model, `model.fit` adds the loss automatically. A custom training loop must use
either the returned value or `model.losses`, not both.
"""

import tensorflow as tf

from tff_pcdd import losses
from tff_pcdd.layers.registration import register


class _LossLayer(tf.keras.layers.Layer):
    """Weights a loss and registers it; computes in float32 under every precision policy."""

    def __init__(self, weight: float = 1.0, **kwargs):
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.weight = weight

    def call(self, inputs, *others):
        if others:
            inputs = (inputs, *others)
        elif not isinstance(inputs, (tuple, list)):
            inputs = (inputs,)
        loss = self.weight * self._loss(*map(tf.convert_to_tensor, inputs))
        self.add_loss(loss)
        return loss

    def compute_output_shape(self, input_shape):
        return tf.TensorShape([])

    def get_config(self):
        return {**super().get_config(), "weight": self.weight}


@register
class IntraClassDecorrelation(_LossLayer):
    """FedMR's intra-class loss, see `losses.intra_class`.

    Called with (features [batch, feature_dim], labels [batch]).
    """

    def __init__(self, num_classes: int, form: str = "frobenius", weight: float = 1.0, **kwargs):
        """Creates the layer.

        Args:
          num_classes: number of classes.
          form: "frobenius", "offdiagonal" or "code".
          weight: factor μ1 of the loss.
          **kwargs: arguments of the Keras base class; `dtype` is ignored.

        Raises:
          ValueError: if `form` is unknown.
        """
        if form not in losses.INTRA_FORMS:
            raise ValueError(f"form must be one of {', '.join(losses.INTRA_FORMS)}, got {form!r}")
        super().__init__(weight, **kwargs)
        self.num_classes = num_classes
        self.form = form

    def _loss(self, features, labels):
        return losses.intra_class(features, labels, self.num_classes, self.form)

    def get_config(self):
        return {**super().get_config(), "num_classes": self.num_classes, "form": self.form}


@register
class InterClassMargin(_LossLayer):
    """FedMR's inter-class loss, see `losses.inter_class`.

    Called with (features [batch, feature_dim], labels [batch], prototypes [num_classes,
    feature_dim], valid [num_classes]) and optionally a mask [batch] of the samples to include.
    """

    def __init__(self, reading: str = "all", weight: float = 1.0, **kwargs):
        """Creates the layer.

        Args:
          reading: "all", "local", "missing" or "nomargin".
          weight: factor μ2 of the loss.
          **kwargs: arguments of the Keras base class; `dtype` is ignored.

        Raises:
          ValueError: if `reading` is unknown.
        """
        if reading not in losses.INTER_READINGS:
            raise ValueError(
                f"reading must be one of {', '.join(losses.INTER_READINGS)}, got {reading!r}"
            )
        super().__init__(weight, **kwargs)
        self.reading = reading

    def _loss(self, features, labels, prototypes, valid, sample_mask=None):
        return losses.inter_class(
            features, labels, prototypes, valid, self.reading, sample_mask=sample_mask
        )

    def get_config(self):
        return {**super().get_config(), "reading": self.reading}


@register
class EqualNorm(_LossLayer):
    """FedLoGe's loss on the lengths of a frame's columns, see `losses.equal_norm`.

    Called with (psi, mask), both [feature_dim, num_classes], or psi alone.
    """

    def __init__(self, norm: float = 0.1, weight: float = 1.0, **kwargs):
        """Creates the layer.

        Args:
          norm: γ, the target length of the columns.
          weight: factor of the loss.
          **kwargs: arguments of the Keras base class; `dtype` is ignored.
        """
        super().__init__(weight, **kwargs)
        self.norm = norm

    def _loss(self, psi, mask=None):
        return losses.equal_norm(psi, mask, self.norm)

    def get_config(self):
        return {**super().get_config(), "norm": self.norm}


@register
class MaximalAngle(_LossLayer):
    """FedLoGe's loss on the angles between a frame's columns, see `losses.maximal_angle`.

    Called with (psi, mask), both [feature_dim, num_classes], or psi alone. `weight` is the factor
    of the loss.
    """

    def _loss(self, psi, mask=None):
        return losses.maximal_angle(psi, mask)

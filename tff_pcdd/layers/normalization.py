"""Batch normalization as in PyTorch, and the normalization of features before a fixed frame."""

import tensorflow as tf

from tff_pcdd.layers.registration import register
from tff_pcdd.losses import l2_normalize

NORMALIZATION_MODES = ("l2", "bn", "bn_l2", "none")


@register
class BatchNormalization(tf.keras.layers.BatchNormalization):
    """Batch normalization over the last axis, with PyTorch's definition of the running variance.

    The batch is normalized with its biased variance, while the moving average receives the unbiased
    one, larger by N/(N-1) (Keras does this for 4-D inputs only). The defaults are momentum 0.9 and
    epsilon 1e-5: with Keras' momentum of 0.99, the averages would lag behind, because a client
    takes only ten to a hundred steps per round. With a single value per channel the variance is
    undefined, and its moving average does not change.

    The output depends on the update of the moving averages, so they are updated in eager mode, in a
    `tf.function`, inside loops, and in TF1 graphs that fetch the output. `trainable=False` means
    inference, as in Keras.

    The input is [batch, channels] or [batch, height, width, channels]; the output has the same
    shape.
    """

    def __init__(self, momentum: float = 0.9, epsilon: float = 1e-5, **kwargs):
        """Creates the layer.

        Args:
          momentum: share of the old moving average that is kept (PyTorch's 1 - momentum).
          epsilon: added to the variance.
          **kwargs: the remaining arguments of `tf.keras.layers.BatchNormalization`.

        Raises:
          ValueError: for `renorm`, `virtual_batch_size`, `adjustment`, `synchronized` or an axis
            other than the last, which this layer does not support.
        """
        unsupported = {
            name: kwargs[name]
            for name in ("renorm", "virtual_batch_size", "adjustment", "synchronized")
            if kwargs.get(name)
        }
        if kwargs.get("axis", -1) not in (-1, [-1], (-1,)):
            unsupported["axis"] = kwargs["axis"]
        if unsupported:
            raise ValueError(f"not supported by tff_pcdd's BatchNormalization: {unsupported}")
        super().__init__(momentum=momentum, epsilon=epsilon, **kwargs)

    def build(self, input_shape):
        """Creates the weights, each [channels].

        Args:
          input_shape: [batch, channels] or [batch, height, width, channels].

        Raises:
          ValueError: if the input has neither two nor four axes.
        """
        rank = tf.TensorShape(input_shape).rank
        if rank not in (2, 4):
            raise ValueError(f"BatchNormalization takes 2-D or 4-D inputs, got shape {input_shape}")
        super().build(input_shape)

    def build_from_config(self, config):
        """Leaves it to the first call to build a layer from a file, whose input may be another."""

    def call(self, inputs, training=None):
        """Normalizes a batch and, in training, moves the averages towards its moments.

        Args:
          inputs: [batch, channels] or [batch, height, width, channels].
          training: Python boolean or scalar boolean tensor; `None` means inference.

        Returns:
          Tensor of the shape and type of `inputs`.
        """
        if training is None or not self.trainable:
            training = False
        if isinstance(training, (bool, int)):
            return self._train(inputs) if training else self._infer(inputs)
        return tf.cond(
            tf.cast(training, tf.bool), lambda: self._train(inputs), lambda: self._infer(inputs)
        )

    def get_config(self):
        # `build` replaced the axis by a positive number, which depends on the rank of the input.
        return {**super().get_config(), "axis": -1}

    def _train(self, inputs):
        outputs, mean, variance = self._normalize(inputs, training=True)
        count = tf.size(inputs) // tf.size(mean)
        # Weight of the new value; 0 if the batch is too small to estimate the moment.
        rate = 1.0 - self.momentum
        mean_rate = tf.where(count > 0, tf.cast(rate, mean.dtype), 0)
        variance_rate = tf.where(count > 1, tf.cast(rate, mean.dtype), 0)
        updates = []

        def update():
            for average, value, weight in (
                (self.moving_mean, mean, mean_rate),
                (self.moving_variance, variance, variance_rate),
            ):
                change = tf.math.multiply_no_nan(value - average, weight)
                updates.append(average.assign_add(change, read_value=False))
            return tf.group(*updates)  # Keras requires an op here in TF1 graphs.

        # With add_update, building a functional model does not change the averages.
        self.add_update(update)
        with tf.control_dependencies([op for op in updates if op is not None]):
            return tf.identity(outputs)

    def _infer(self, inputs):
        return self._normalize(inputs, training=False)[0]

    def _normalize(self, inputs, training):
        """Output, mean and variance (unbiased in training) of a batch."""
        channels = inputs.shape[-1]
        flat = inputs.shape.rank == 2
        dtype = self._param_dtype
        gamma = self.gamma if self.scale else tf.ones([channels], dtype)
        beta = self.beta if self.center else tf.zeros([channels], dtype)
        if inputs.dtype == tf.float64:
            # The fused kernel does not support float64.
            if training:
                mean, biased = tf.nn.moments(inputs, list(range(inputs.shape.rank - 1)))
                count = tf.cast(tf.size(inputs) // channels, dtype)
                variance = biased * count / tf.maximum(count - 1, 1)
            else:
                mean = tf.convert_to_tensor(self.moving_mean)
                biased = variance = tf.convert_to_tensor(self.moving_variance)
            outputs = tf.nn.batch_normalization(inputs, mean, biased, beta, gamma, self.epsilon)
            return outputs, mean, variance
        # The fused kernel is several times faster than single operations and returns the unbiased
        # variance, but it requires 4-D inputs.
        outputs, mean, variance = tf.compat.v1.nn.fused_batch_norm(
            tf.reshape(inputs, [-1, 1, 1, channels]) if flat else inputs,
            gamma,
            beta,
            mean=None if training else self.moving_mean,
            variance=None if training else self.moving_variance,
            epsilon=self.epsilon,
            is_training=training,
        )
        return tf.reshape(outputs, [-1, channels]) if flat else outputs, mean, variance


@register
class FeatureNormalization(tf.keras.layers.Layer):
    """Normalizes the features before a fixed frame, always in float32.

    The modes are:
      `l2`: scales each feature vector to length 1, as in FedGELA's paper.
      `bn`: batch normalization with scale and offset, as in FedGELA's code; the length of a feature
        vector is then about the square root of feature_dim.
      `bn_l2`: batch normalization, then scaling to length 1.
      `none`: leaves the features unchanged.

    Input and output are [batch, feature_dim].
    """

    def __init__(self, mode: str = "l2", **kwargs):
        """Creates the layer.

        Args:
          mode: "l2", "bn", "bn_l2" or "none".
          **kwargs: arguments of the Keras base class; `dtype` is ignored, see the class docstring.

        Raises:
          ValueError: if `mode` is unknown.
        """
        if mode not in NORMALIZATION_MODES:
            raise ValueError(f"mode must be one of {', '.join(NORMALIZATION_MODES)}, got {mode!r}")
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.mode = mode
        self.batch_normalization = (
            BatchNormalization(name="batch_normalization", dtype="float32")
            if mode.startswith("bn")
            else None
        )

    def build(self, input_shape):
        if self.batch_normalization is not None:
            self.batch_normalization.build(input_shape)
        super().build(input_shape)

    def call(self, features, training=None):
        if self.batch_normalization is not None:
            features = self.batch_normalization(features, training=training)
        return l2_normalize(features) if self.mode.endswith("l2") else features

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "mode": self.mode}

"""Batch normalisation as the published experiments ran it, and the choices for ETF features."""

import tensorflow as tf

from tff_pcdd.losses import l2_normalize

_REGISTER = tf.keras.utils.register_keras_serializable(package="tff_pcdd")

NORMALIZATION_MODES = ("l2", "bn", "bn_l2", "none")


@_REGISTER
class BatchNormalization(tf.keras.layers.BatchNormalization):
    """Batch normalisation over the last axis with PyTorch's meaning of the running variance.

    The batch is normalised with its biased variance, but the variance with N/(N-1) goes into the
    moving average (Keras does so for 4-D inputs only). Defaults are momentum 0.9 and epsilon
    1e-5: with Keras' 0.99 the averages would lag behind for the ten to a hundred steps that a
    client takes per round. With a single value per channel the variance does not exist, and its
    moving average stays as it is.

    The moving averages are assigned before the output exists, so they are updated in eager mode,
    in a `tf.function`, inside loops, and in TF1 graphs that fetch the output. `trainable=False`
    means inference, as in Keras.

    Input [batch, channels] or [batch, height, width, channels]; the output has the same shape.
    """

    def __init__(self, momentum: float = 0.9, epsilon: float = 1e-5, **kwargs):
        """Prepares the layer.

        Args:
          momentum: share of the old moving average that is kept (PyTorch's 1 - momentum).
          epsilon: added to the variance.
          **kwargs: the remaining arguments of `tf.keras.layers.BatchNormalization`.

        Raises:
          ValueError: for `renorm`, `virtual_batch_size`, `adjustment`, `synchronized` or another
            axis than the last, which this layer does not have.
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

    def call(self, inputs, training=None):
        """Normalises a batch and, in training, moves the averages towards its moments.

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
        """Arguments from which the layer can be made again."""
        # Keras turns the axis into its positive form on build, which depends on the rank.
        return {**super().get_config(), "axis": -1}

    def _train(self, inputs):
        outputs, mean, variance = self._normalize(inputs, training=True)
        count = tf.size(inputs) // tf.size(mean)
        # The weight of the new value; 0 leaves an average that this batch says nothing about.
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
            return tf.group(*updates)  # what a layer made in a TF1 graph has to return

        # Through add_update, so that building a functional model leaves the averages alone.
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
            # The fused kernel has no float64.
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
        # variance; it wants four axes.
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


@_REGISTER
class FeatureNormalization(tf.keras.layers.Layer):
    """What happens to features before a fixed frame, always in float32.

    `l2`: length 1, FedGELA's paper. `bn`: batch normalisation with scale and offset and nothing
    after it, FedGELA's code; the features' length is then about the root of their number. `bn_l2`:
    the first, then the other. `none`: as they are.

    Input and output are [batch, feature_dim].
    """

    def __init__(self, mode: str = "l2", **kwargs):
        """Prepares the layer.

        Args:
          mode: "l2", "bn", "bn_l2" or "none".
          **kwargs: arguments of every Keras layer; `dtype` is ignored, see the class.

        Raises:
          ValueError: for another mode.
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
        """Creates the batch normalisation's weights, if there is one.

        Args:
          input_shape: [batch, feature_dim].
        """
        if self.batch_normalization is not None:
            self.batch_normalization.build(input_shape)
        super().build(input_shape)

    def call(self, features, training=None):
        """Normalises features.

        Args:
          features: [batch, feature_dim].
          training: whether batch statistics are used and the moving averages updated.

        Returns:
          Float32 tensor [batch, feature_dim].
        """
        if self.batch_normalization is not None:
            features = self.batch_normalization(features, training=training)
        return l2_normalize(features) if self.mode.endswith("l2") else features

    def compute_output_shape(self, input_shape):
        """Shape of the output: that of the input."""
        return input_shape

    def get_config(self):
        """Arguments from which the layer can be made again."""
        return {**super().get_config(), "mode": self.mode}

"""Keras heads whose classifier is fixed: simplex ETF, ETF adapted to a client, sparse ETF."""

import tensorflow as tf

from tff_pcdd.layers.registration import register
from tff_pcdd.layers.simplex import SimplexETFInitializer, check_etf_shape
from tff_pcdd.layers.sparse import SparseETFInitializer
from tff_pcdd.losses import etf_logits, mask_logits


@register
class FixedETF(tf.keras.layers.Layer):
    """Head of FedGELA's global model: scaled cosines of features with a fixed simplex ETF.

    The frame is the non-trainable float32 weight `etf` [feature_dim, num_classes], drawn from the
    seed. It is saved and loaded with the other weights, so a checkpoint keeps its own frame.
    Everything is computed in float32, even under a mixed precision policy, because logits of 1e5
    overflow in half precision.

    The input is features [batch, feature_dim], with feature_dim at least num_classes, the output
    float32 logits [batch, num_classes].
    """

    def __init__(
        self, num_classes: int, seed: int, scale: float = 1.0, normalize: bool = True, **kwargs
    ):
        """Creates the head.

        Args:
          num_classes: number of classes, at least 2.
          seed: seed of the frame.
          scale: factor of the logits, see `losses.etf_logits`.
          normalize: whether to scale the features to length 1 first.
          **kwargs: arguments of the Keras base class; `dtype` is ignored, see the class docstring.

        Raises:
          ValueError: for fewer than two classes.
        """
        if num_classes < 2:
            raise ValueError(f"a simplex ETF needs num_classes >= 2, got {num_classes}")
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.num_classes = num_classes
        self.seed = seed
        self.scale = scale
        self.normalize = normalize

    def build(self, input_shape):
        feature_dim = tf.TensorShape(input_shape)[-1]
        check_etf_shape(feature_dim, self.num_classes)
        self.etf = self.add_weight(
            name="etf",
            shape=(feature_dim, self.num_classes),
            dtype=tf.float32,
            initializer=SimplexETFInitializer(self.seed),
            trainable=False,
            experimental_autocast=False,
        )
        super().build(input_shape)

    @property
    def kernel(self):
        """The frame, [feature_dim, num_classes], under the name that linear heads use."""
        return self.etf

    def call(self, features):
        return etf_logits(features, self.etf, scale=self.scale, normalize=self.normalize)

    def compute_output_shape(self, input_shape):
        return tf.TensorShape(input_shape)[:-1].concatenate(self.num_classes)

    def get_config(self):
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "seed": self.seed,
            "scale": self.scale,
            "normalize": self.normalize,
        }


@register
class AdaptedETF(FixedETF):
    """Head of FedGELA's personal model: a `FixedETF` whose columns are scaled by Φ.

    Φ is an argument of every call, `layer((features, phi))` or `layer(features, phi)`, because it
    belongs to the client and not to the model; see `losses.phi_from_counts`.
    """

    def __init__(
        self,
        num_classes: int,
        seed: int,
        scale: float = 1.0,
        normalize: bool = True,
        masked: bool = False,
        **kwargs,
    ):
        """Creates the head; all arguments but `masked` are those of the global model's `FixedETF`.

        Args:
          masked: whether classes with Φ = 0 are excluded from the softmax, as in the paper;
            otherwise their logit is 0, as in the authors' code. If masked, the loss of a client
            with a single class has no gradient.
        """
        super().__init__(num_classes, seed, scale=scale, normalize=normalize, **kwargs)
        self.masked = masked

    def build(self, input_shape):
        super().build(_first_shape(input_shape))

    def call(self, features, phi=None):
        """Computes logits.

        Args:
          features: [batch, feature_dim], or the pair (features, phi).
          phi: [num_classes] or [batch, num_classes]; ignored if `features` is a pair.

        Returns:
          Float32 logits [batch, num_classes].

        Raises:
          ValueError: if Φ is missing.
        """
        if isinstance(features, (tuple, list)):
            features, phi = features
        if phi is None:
            raise ValueError("AdaptedETF takes (features, phi); without phi, use FixedETF")
        phi = tf.cast(phi, tf.float32)
        logits = etf_logits(features, self.etf, phi, scale=self.scale, normalize=self.normalize)
        return mask_logits(logits, phi) if self.masked else logits

    def compute_output_shape(self, input_shape):
        return super().compute_output_shape(_first_shape(input_shape))

    def get_config(self):
        return {**super().get_config(), "masked": self.masked}


@register
class FixedHead(tf.keras.layers.Layer):
    """Linear classifier without bias whose matrix is never trained.

    The matrix is the non-trainable float32 weight `kernel` [feature_dim, num_classes]. The features
    are not normalized. Everything is computed in float32, even under a mixed precision policy.

    The input is features [batch, feature_dim], the output float32 logits [batch, num_classes].
    """

    def __init__(self, num_classes: int, kernel_initializer="glorot_uniform", **kwargs):
        """Creates the head.

        Args:
          num_classes: number of classes.
          kernel_initializer: Keras initializer of the matrix.
          **kwargs: arguments of the Keras base class; `dtype` is ignored, see the class docstring.
        """
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.num_classes = num_classes
        self.kernel_initializer = tf.keras.initializers.get(kernel_initializer)

    def build(self, input_shape):
        self.kernel = self.add_weight(
            name="kernel",
            shape=(tf.TensorShape(input_shape)[-1], self.num_classes),
            dtype=tf.float32,
            initializer=self.kernel_initializer,
            trainable=False,
            experimental_autocast=False,
        )
        super().build(input_shape)

    def call(self, features):
        return tf.matmul(features, self.kernel)

    def compute_output_shape(self, input_shape):
        return tf.TensorShape(input_shape)[:-1].concatenate(self.num_classes)

    def get_config(self):
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "kernel_initializer": tf.keras.initializers.serialize(self.kernel_initializer),
        }


@register
class SparseETF(FixedHead):
    """Head used to train FedLoGe's backbone: a `FixedHead` with a sparse frame (SSE-C).

    There is no bias, as in the paper; the authors' code has a random one.
    """

    def __init__(
        self,
        num_classes: int,
        seed: int,
        sparsity: float = 0.6,
        norm: float = 0.1,
        steps: int = 10000,
        learning_rate: float = 1e-4,
        init: str = "etf",
        **kwargs,
    ):
        """Creates the head; the frame is optimized when the layer is built.

        The arguments are those of `layers.sparse_etf` and of the Keras base class; `dtype` is
        ignored.
        """
        initializer = SparseETFInitializer(seed, sparsity, norm, steps, learning_rate, init)
        super().__init__(num_classes, initializer, **kwargs)

    def get_config(self):
        config = super().get_config()
        del config["kernel_initializer"]
        return {**config, **self.kernel_initializer.get_config()}


def _first_shape(shapes):
    """The shape of the features: `shapes` itself, or its first element if it holds several."""
    if isinstance(shapes, (tuple, list)) and isinstance(shapes[0], (tuple, list, tf.TensorShape)):
        return shapes[0]
    return shapes

"""Backbones beyond Simple-CNN and ResNet18/34: sizes, shapes, normalization, refusals."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tests.data.refusals import refuses
from tff_pcdd import layers, models, settings
from tff_pcdd.errors import SettingError
from tff_pcdd.federated import initialization
from tff_pcdd.models import resnet, wide_resnet


def build(name, shape=(32, 32, 3), *, normalization="batch", **options):
    """A model in a graph of its own, where no variable is filled."""
    own = {} if normalization == "batch" else {"normalization": normalization}
    with tf.Graph().as_default():
        return models.create(name, **own).build(shape, **options)


def count(weights) -> int:
    return sum(math.prod(weight.shape) for weight in weights)


def test_wide_resnet_has_the_published_size():
    """Table 3 of FedMR counts the state dict: averages, and a counter per batch normalization."""
    model = build("wide_resnet")
    assert model.output_shape == (None, 640)
    trainable = count(model.trainable_weights) + 640 * 100 + 100
    assert trainable == 36_546_980
    norms = [x for x in model.layers if isinstance(x, layers.BatchNormalization)]
    assert trainable + count(model.non_trainable_weights) + len(norms) == 36_564_957
    # PyTorch's momentum of 0.9 is the share of the new value.
    assert [norm.momentum for norm in norms] == [0.9] * 24 + [pytest.approx(0.1)]
    dropouts = [x for x in model.layers if isinstance(x, layers.StatelessDropout)]
    assert [dropout.rate for dropout in dropouts] == [0.3] * 12
    assert all(x.use_bias for x in model.layers if isinstance(x, tf.keras.layers.Conv2D))


@pytest.mark.parametrize(
    ("name", "shape", "options", "width", "size"),
    [
        ("mlp", (28, 28, 1), {}, 84, 785 * 120 + 121 * 84),
        ("mlp", (8, 8, 1), {"projection_dim": 5}, 5, 65 * 120 + 121 * 5),
        ("linear", (512,), {}, 512, 0),
        ("linear", (8, 8, 1), {"projection_dim": 5}, 5, 65 * 5),
        (
            "lstm",
            (80,),
            {"vocabulary_size": 81},
            256,
            81 * 8 + 4 * 256 * (8 + 256 + 1) + 4 * 256 * (256 + 256 + 1),
        ),
    ],
)
def test_sizes(name, shape, options, width, size):
    model = build(name, shape, **options)
    assert model.output_shape == (None, width)
    assert count(model.trainable_weights) == size


@pytest.mark.parametrize("block", [resnet.bottleneck_block, wide_resnet.wide_block])
@pytest.mark.parametrize("side", [5, 6])
def test_blocks_with_stride_see_the_same_places_in_every_size(block, side):
    """One pixel of padding on every side: the top left corner is that of a larger image."""
    tf.keras.utils.set_random_seed(0)
    inputs = tf.keras.Input((None, None, 3))
    model = tf.keras.Model(inputs, block(inputs, 4, 2))
    image = np.random.default_rng(0).normal(size=(1, 8, 8, 3)).astype(np.float32)
    large, small = model(image).numpy(), model(image[:, :side, :side]).numpy()
    assert small.shape[1:3] == (math.ceil(side / 2),) * 2
    np.testing.assert_allclose(small[:, :2, :2], large[:, :2, :2], rtol=1e-4, atol=1e-5)
    pads = [x.padding for x in model.layers if isinstance(x, tf.keras.layers.ZeroPadding2D)]
    assert set(pads) == {((1, 1), (1, 1))}


def test_group_normalization_keeps_no_statistics():
    batch, group = build("resnet18"), build("resnet18", normalization="group")
    assert count(group.trainable_weights) == count(batch.trainable_weights)
    assert not group.non_trainable_weights
    assert not any(isinstance(x, layers.BatchNormalization) for x in group.layers)


def test_number_of_groups():
    channels = (1, 3, 16, 24, 40, 64, 112, 640)
    assert [models.number_of_groups(n) for n in channels] == [1, 3, 16, 24, 20, 32, 28, 32]


def test_group_normalization_is_the_formula():
    inputs = tf.keras.Input((4, 4, 6))
    model = tf.keras.Model(inputs, models.normalize(inputs, "group"))
    x = np.random.default_rng(0).normal(2, 3, size=(2, 4, 4, 6)).astype(np.float32)
    mean, variance = x.mean((1, 2), keepdims=True), x.var((1, 2), keepdims=True)
    np.testing.assert_allclose(
        model(x, training=True), (x - mean) / np.sqrt(variance + 1e-5), rtol=1e-4, atol=1e-5
    )


@pytest.mark.integration
def test_lstm_learns_the_next_character():
    """Two words of which each repeats; one character does not tell which word it is."""
    tf.keras.utils.set_random_seed(0)
    words = [[0, 1, 2, 1], [3, 1, 4, 1]]
    length = 6
    lines = [
        np.roll(np.tile(word, length), -shift)[: length + 1] for word in words for shift in range(4)
    ]
    lines = np.array(lines, np.int32)
    model = models.create("lstm").build((length,), vocabulary_size=5)
    network = tf.keras.Sequential([model, tf.keras.layers.Dense(5)])
    x, y = lines[:, :-1], lines[:, -1]
    optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=network(x))
            )
        variables = network.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    for _ in range(100):
        step()
    np.testing.assert_array_equal(np.argmax(network(x), axis=1), y)


def test_networks_that_are_about_to_be_assigned_stay_empty():
    """Also where there are weights to start from."""
    with tf.Graph().as_default():
        shapes = [weight.shape for weight in models.create("mlp").build((4, 4, 1)).weights]
    values = [np.full(shape, number + 1.0, np.float32) for number, shape in enumerate(shapes)]
    made = models.create("mlp").build((4, 4, 1), weights=values)
    for weight, value in zip(made.weights, values, strict=True):
        np.testing.assert_array_equal(weight, value)
    with initialization.zeros():
        made = models.create("mlp").build((4, 4, 1), weights=values)
    assert not any(weight.numpy().any() for weight in made.weights)
    with tf.Graph().as_default() as graph, initialization.zeros():
        models.create("mlp").build((4, 4, 1), weights=values)
    assert not [op for op in graph.get_operations() if op.type == "AssignVariableOp"]


@pytest.mark.parametrize(
    ("name", "shape", "options", "reason"),
    [
        ("lstm", (32, 32, 3), {}, "data are images of 32×32×3, which need .* or simple_cnn or"),
        ("lstm", (60,), {}, "the data are vectors of 60 numbers, which need linear or mlp$"),
        (
            "mlp",
            (80,),
            {"vocabulary_size": 81},
            "needs images .* texts of 80 characters need lstm$",
        ),
        ("resnet34", (80,), {}, "needs images .* vectors of 80 numbers need linear or mlp$"),
        ("alexnet", (32, 32, 3), {}, "choose one of .*resnet18.*simple_cnn"),
        ("simple_cnn", (3, 8, 1), {}, "needs images of at least 4×4 .* 8, 1"),
        ("resnet18", (7, 32, 3), {}, "needs images of at least 8×8 .* 32, 3"),
        ("efficientnet_b0", (28, 28, 1), {}, "at least 32×32"),
        ("wide_resnet", (7, 8, 3), {}, "at least 8×8"),
        ("resnet50", (32, 4, 3), {}, "at least 8×8"),
    ],
)
def test_inputs_that_a_backbone_does_not_take(name, shape, options, reason):
    with refuses("model", reason, name):
        models.create(name).build(shape, **options)


@pytest.mark.parametrize(
    ("name", "normalization", "reason"),
    [
        ("simple_cnn", "group", "simple_cnn has no such option"),
        ("resnet18", "layer", "choose one of batch, group"),
    ],
)
def test_normalizations_that_a_backbone_does_not_have(name, normalization, reason):
    with refuses("normalization", reason, normalization):
        models.create(name, normalization=normalization)


def test_options_belong_to_the_backbones_that_have_them():
    config = settings.build(models.ModelConfig, {"model": "resnet18"})
    assert settings.flatten(config)["normalization"] == "batch"
    assert "pretrained_weights" not in settings.flatten(config)
    config = settings.build(models.ModelConfig, {"model": "simple_cnn"})
    assert "normalization" not in settings.flatten(config)

    def refuse(**values):
        with pytest.raises(SettingError) as error:
            settings.build(models.ModelConfig, values)
        return error.value.setting, error.value.reason

    with_norm = (
        "efficientnet_b0|resnet18|resnet18_imagenet|resnet34|resnet50|resnet8|simple_cnn_bn|"
        "wide_resnet"
    )
    assert refuse(model="mlp", normalization="group") == (
        "normalization",
        f"applies only with model={with_norm}",
    )
    assert refuse(model="resnet18", pretrained_weights="x") == (
        "pretrained_weights",
        "applies only with model=efficientnet_b0",
    )
    assert refuse(model="efficientnet_b0", normalization="group", pretrained_weights="x") == (
        "pretrained_weights",
        "applies only with normalization=batch",
    )

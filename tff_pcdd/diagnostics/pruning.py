"""Accuracy of the global model with pruned features (FedLoGe, figure 3).

Xiao et al., Joint Local and Generic Federated Learning under Long-tailed Data, ICLR 2024: many
features of a network that was trained with a sparse classifier have a small mean and can be removed
without loss.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from etils import epy

from tff_pcdd.diagnostics import geometry
from tff_pcdd.methods import Method, Network

# Tables and pictures of comparisons need only the names.
with epy.lazy_imports():
    import tensorflow as tf

# Shares of features that are pruned, in percent.
SHARES = tuple(range(0, 101, 10))

# Which features are pruned first: those with the smallest or with the largest mean.
ORDERS = ("smallest", "largest")


def accuracies(
    method: Method, net: Network, features: np.ndarray, labels: np.ndarray
) -> dict[str, np.ndarray]:
    """Measures the global model while a growing share of the backbone's features is set to 0.

    Features are ordered by their mean absolute value over the samples. What follows the backbone,
    up to the logits of the global model, works as usual.

    Returns:
        For each of `ORDERS`, the accuracy in percent at each of `SHARES`.
    """
    # A network with several backbones evaluates several heads, of which one is needed here.
    backbones = [name for name in net.parts if name.endswith("backbone")]
    heads = net.replacing(**dict.fromkeys(backbones, lambda features, training: features))
    width = features.shape[1]
    ascending = np.argsort(np.abs(features).mean(axis=0), kind="stable")
    results = {}
    for name, order in zip(ORDERS, (ascending, ascending[::-1]), strict=True):
        values = []
        for share in SHARES:
            kept = np.ones(width, features.dtype)
            kept[order[: round(share * width / 100)]] = 0
            logits = method.global_logits(heads, tf.constant(kept * features))[""].numpy()
            values.append(100 * geometry.mean(logits.argmax(axis=1) == labels))
        results[name] = np.array(values)
    return results


def numbers(measured: Mapping[str, np.ndarray] | None) -> dict[str, float]:
    """The accuracies by name, such as `smallest_30`; NaN if they were not measured."""
    unknown = np.full(len(SHARES), np.nan)
    return {
        f"{order}_{share}": float(value)
        for order in ORDERS
        for share, value in zip(SHARES, (measured or {}).get(order, unknown), strict=True)
    }

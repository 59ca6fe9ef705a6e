"""What is known of methods by their names, and the order in which they are shown."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from tff_pcdd.methods import registry
from tff_pcdd.results.run_results import Results


def is_baseline(method: str) -> bool:
    """Whether a method is not federated, so that it is not ranked."""
    return _known(method, "baseline", False)


def federated(methods: Iterable[str]) -> list[str]:
    """The methods without the baselines."""
    return [method for method in methods if not is_baseline(method)]


def has_global_model(method: str) -> bool:
    """Whether a method has a global model, so that GA is an accuracy of it."""
    return _known(method, "has_global_model", True)


def starts_from_global(method: str) -> bool:
    """Whether personal models are the global one before local training; not if it is unknown."""
    return method in registry.classes() and registry.classes()[method].starts_from_global()


def is_re_trained(method: str) -> bool:
    """Whether a method is another one with a re-trained head."""
    return _known(method, "head_calibration", False)


def _known(method: str, attribute: str, otherwise: bool) -> bool:
    """An attribute of a method's class; the module of a user's own may not be imported here."""
    return bool(getattr(registry.classes().get(method), attribute, otherwise))


def drawn(methods: Collection[str]) -> list[str]:
    """The methods whose GA is drawn: without baselines that have no global model.

    Their curve is flat near chance, where most of the test set has classes that the client has
    never seen, and would squeeze the others.

    Example:
        >>> drawn(["fedavg", "fedper", "local", "central"]), drawn(["local"])
        (['fedavg', 'fedper', 'central'], ['local'])
    """
    kept = [method for method in methods if has_global_model(method) or not is_baseline(method)]
    return kept or [*methods]


def ordered(results: Results) -> list[str]:
    """The methods: by GA, then those without a global model by PA, baselines last."""

    def place(method: str) -> tuple[bool, bool, float]:
        own = results.of(method=method)
        has_model = has_global_model(method)
        value = own.mean("ga_final" if has_model else "pa_final")
        return (is_baseline(method), not has_model, math.inf if value is None else -value)

    return sorted(results.methods, key=place)

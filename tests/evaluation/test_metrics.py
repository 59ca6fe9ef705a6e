"""Metrics by name, against NumPy; one's own besides those of the package."""

import dataclasses
import math

import numpy as np
import pytest
import sklearn.metrics

from tests.data.refusals import refuses
from tff_pcdd.errors import SettingError
from tff_pcdd.evaluation import metrics
from tff_pcdd.settings import option

CORRECT = np.array([9, 1, 0, 4], np.int32)
TOTAL = np.array([10, 4, 0, 5], np.int32)


def test_balanced_accuracy():
    value = metrics.create("balanced").measure(CORRECT, TOTAL)
    assert value == pytest.approx(100 * np.mean([0.9, 0.25, 0.8]))
    assert isinstance(value, float)


def test_worst_class():
    """The class without samples is left out; one without correct answers is not."""
    value = metrics.create("worst_class").measure(CORRECT, TOTAL)
    assert value == pytest.approx(25)
    assert isinstance(value, float)
    assert metrics.create("worst_class").measure(np.array([0, 3]), np.array([2, 3])) == 0


@pytest.mark.parametrize("name", metrics.names())
def test_bounds(name):
    metric, ones = metrics.create(name), np.ones(3, np.int32)
    assert metric.measure_answers(ones, ones, ones) == 100.0
    assert metric.measure_answers(0 * ones, ones, ones) == 0.0
    assert math.isnan(metric.measure_answers(0 * ones, 0 * ones, 0 * ones))


@pytest.mark.parametrize("average", ["macro", "weighted"])
@pytest.mark.parametrize("held", [(0, 1, 2, 3), (1, 2)])
def test_f1_is_that_of_scikit_learn(average, held):
    """Classes that a client lacks count if they are answered, and otherwise not."""
    generator = np.random.default_rng(1)
    labels = generator.choice(held, 60)
    answers = np.where(generator.random(60) < 0.6, labels, generator.integers(0, 4, 60))
    correct = np.bincount(labels[answers == labels], minlength=5)
    counts = [np.bincount(values, minlength=5) for values in (labels, answers)]
    expected = 100 * sklearn.metrics.f1_score(labels, answers, average=average)
    found = metrics.create(f"{average}_f1").measure_answers(correct, *counts)
    assert found == pytest.approx(expected, rel=1e-12)
    assert isinstance(found, float)


def test_a_metric_of_ones_own(monkeypatch):
    """Registered outside the package, with an option."""
    monkeypatch.setattr(metrics.registry, "_classes", metrics.registry.classes())

    @metrics.register
    @dataclasses.dataclass(frozen=True)
    class OfClass(metrics.Metric):
        name = "of_class"
        label: int = option(0, "The class.", minimum=0)

        def measure(self, correct, total):
            return 100.0 * correct[self.label] / total[self.label]

    assert metrics.names() == ["balanced", "macro_f1", "of_class", "weighted_f1", "worst_class"]
    assert metrics.create("of_class", label=3).measure(CORRECT, TOTAL) == pytest.approx(80)
    with pytest.raises(SettingError) as info:
        metrics.create("of_class", label=-1)
    assert info.value.setting == "label"


def test_an_unknown_metric_is_refused():
    with refuses("metrics", "balanced, macro_f1, weighted_f1, worst_class"):
        metrics.get("median")

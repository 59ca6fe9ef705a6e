"""Calibration: whether a model's probabilities agree with how often it is right.

Expected calibration error and temperature scaling are those of "On Calibration of Modern Neural
Networks", C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger, ICML 2017, equations 3 and 9: the confidence
of an answer is its largest probability, confidences are divided into 15 bins of equal width, and a
temperature T, by which all logits are divided, minimizes the negative log-likelihood of held-out
samples. A temperature changes probabilities, but no prediction.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from scipy import optimize, special

BINS = 15

# The temperatures that are tried.
LOWEST, HIGHEST = 0.01, 100.0

# The fewest held-out samples from which a temperature is fitted.
FEWEST = 10

# The likelihood ratio from which held-out samples show that a temperature is better than none. It
# is worse than none if the best one, on a logarithmic scale, lies nearer to 1 than to it. The ratio
# is about the square of its distance from 1 in standard errors, so the probability of that is 5 %
# at twice 1.645 standard errors.
LEAST_RATIO = (2 * 1.645) ** 2

# The probability, by chance, of a number of correct answers that shows a bias: that of a normal
# distribution beyond two standard errors on one side, rounded.
RARE = 0.025

# A finite logit whose probability is 0 in float64, whatever the others are.
_LOWEST = np.float64(-1e300)


@dataclasses.dataclass(frozen=True)
class Reliability:
    """Answers by confidence, with an entry for each of the bins ((b − 1)/B, b/B].

    Attributes:
        samples: number of samples, int64 [B].
        confidence: sum of their confidences, float64 [B].
        correct: number of samples that are classified correctly, int64 [B].
    """

    samples: np.ndarray
    confidence: np.ndarray
    correct: np.ndarray

    def __add__(self, other: Reliability) -> Reliability:
        """The reliability of both sets of answers together."""
        return Reliability(
            self.samples + other.samples,
            self.confidence + other.confidence,
            self.correct + other.correct,
        )

    @property
    def error(self) -> float:
        """The expected calibration error in percent; NaN without samples.

        The mean over all samples of the distance between accuracy and mean confidence in the
        sample's bin.
        """
        return self._share(np.sum(np.abs(self.correct - self.confidence)))

    @property
    def mean_confidence(self) -> float:
        """The mean confidence in percent; NaN without samples."""
        return self._share(np.sum(self.confidence))

    @property
    def accuracy(self) -> float:
        """The accuracy in percent; NaN without samples."""
        return self._share(np.sum(self.correct))

    @property
    def is_biased(self) -> bool:
        """Whether accuracy and mean confidence differ by more than chance; not without samples.

        If confidences were the probabilities of being right, the number of correct answers would
        vary no more than the binomial distribution with the mean confidence.
        """
        samples, correct = int(self.samples.sum()), int(self.correct.sum())
        if not samples:
            return False
        share = min(1.0, self.mean_confidence / 100)
        if correct > share * samples:
            return bool(special.bdtrc(correct - 1, samples, share) < RARE)
        return bool(special.bdtr(correct, samples, share) < RARE)

    def _share(self, total: float) -> float:
        samples = self.samples.sum()
        return float(100.0 * total / samples) if samples else float("nan")


def reliability(
    logits: np.ndarray, labels: np.ndarray, temperature: float = 1.0, bins: int = BINS
) -> Reliability:
    """Divides the answers of a model by their confidence.

    Args:
        logits: [n, C]; samples with a logit that is NaN or infinite are left out.
        labels: integer classes [n].
        temperature: what the logits are divided by.
        bins: number of bins of equal width, B.
    """
    logits, labels = finite(logits, labels)
    confidence = np.exp(_log_probabilities(logits, temperature).max(axis=1, initial=-np.inf))
    edges = np.linspace(0, 1, bins + 1)[1:-1]
    index = np.searchsorted(edges, confidence, side="left")
    correct = logits.argmax(axis=1) == labels
    return Reliability(
        np.bincount(index, minlength=bins),
        np.bincount(index, confidence, bins),
        np.bincount(index[correct], minlength=bins),
    )


def finite(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The samples whose logits [n, C] are all finite, and their labels [n]."""
    usable = np.isfinite(logits).all(axis=1)
    return logits[usable], labels[usable]


def negative_log_likelihood(
    logits: np.ndarray, labels: np.ndarray, temperature: float = 1.0
) -> float:
    """Mean of −log p(label); NaN without samples.

    Args:
        logits: [n, C].
        labels: integer classes [n].
        temperature: what the logits are divided by.
    """
    if not len(labels):
        return float("nan")
    log_probabilities = _log_probabilities(logits, temperature)
    return float(-np.mean(log_probabilities[np.arange(len(labels)), labels]))


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """The temperature with the lowest negative log-likelihood.

    The negative log-likelihood is a convex function of 1/T, so a search in one dimension finds its
    minimum.

    Args:
        logits: of held-out samples [n, C]; samples with a logit that is NaN or infinite are left
            out.
        labels: their integer classes [n].

    Returns:
        A number from 0.01 to 100; NaN if there are fewer than 10 samples. Also NaN if all are
        classified correctly: then the lower the temperature the better, and none is the best.
    """
    logits, labels = finite(logits, labels)
    if len(labels) < FEWEST or (logits.argmax(axis=1) == labels).all():
        return float("nan")
    found = optimize.minimize_scalar(
        lambda log_t: negative_log_likelihood(logits, labels, np.exp(log_t)),
        bounds=np.log([LOWEST, HIGHEST]),
        method="bounded",
        options={"xatol": 1e-5},
    )
    return float(np.exp(found.x))


def likelihood_ratio(logits: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    """Twice the logarithm of how much more likely the labels are with a temperature than without.

    Args:
        logits: [n, C]; samples with a logit that is NaN or infinite are left out.
        labels: integer classes [n].
        temperature: as fitted to them; NaN if none is.

    Returns:
        The ratio, which is 0 or more; NaN without a temperature.
    """
    if not np.isfinite(temperature):
        return float("nan")
    logits, labels = finite(logits, labels)
    before, after = (negative_log_likelihood(logits, labels, t) for t in (1.0, temperature))
    return 2 * len(labels) * (before - after)


def _log_probabilities(logits: np.ndarray, temperature: float) -> np.ndarray:
    return special.log_softmax(np.asarray(logits, np.float64) / temperature, axis=1)


@dataclasses.dataclass(frozen=True)
class Calibration:
    """How well the probabilities of a model are calibrated on test samples.

    Attributes:
        before: the answers of the model as it is.
        after: the answers with the temperature; equal to `before` without one.
        temperature: fitted on held-out samples; NaN if that is not possible, see `fit_temperature`.
        held_out_samples: number of the held-out samples.
        likelihood_ratio: of these samples, see `likelihood_ratio`; NaN without a temperature.
        own: the answers that are restricted to a client's own classes, without and with the
            temperature; None for a model that has no such answers.
    """

    before: Reliability
    after: Reliability
    temperature: float
    held_out_samples: int
    likelihood_ratio: float = float("nan")
    own: tuple[Reliability, Reliability] | None = None

    @property
    def is_uncertain(self) -> bool:
        """Whether the samples do not show that the temperature is better than none."""
        return self.likelihood_ratio < LEAST_RATIO

    @property
    def is_determined(self) -> bool:
        """Whether there is a temperature that the samples show to be better than none."""
        return bool(np.isfinite(self.temperature)) and not self.is_uncertain


def calibrate(
    test: Iterable[tuple[np.ndarray, np.ndarray]],
    held_out: tuple[np.ndarray, np.ndarray],
    own: np.ndarray | None = None,
) -> Calibration:
    """Fits a temperature on held-out samples, and measures its effect on test samples.

    Args:
        test: logits [n, C] and integer classes [n] of the test samples, in batches.
        held_out: logits [m, C] and classes [m] of the held-out samples.
        own: bool [C], the classes to which a client's own answers are restricted, if there are any.
    """
    temperature = fit_temperature(*held_out)
    divisors = (1.0, temperature) if np.isfinite(temperature) else (1.0,)
    of_all = of_own = [reliability(np.zeros([0, 1]), np.zeros(0, int))] * len(divisors)
    for logits, labels in test:
        of_all = _added(of_all, logits, labels, divisors)
        if own is not None:
            of_own = _added(of_own, np.where(own, logits, _LOWEST), labels, divisors)
    return Calibration(
        of_all[0],
        of_all[-1],
        temperature,
        len(held_out[1]),
        likelihood_ratio(*held_out, temperature),
        None if own is None else (of_own[0], of_own[-1]),
    )


def _added(
    sums: Sequence[Reliability], logits: np.ndarray, labels: np.ndarray, divisors: Sequence[float]
) -> list[Reliability]:
    """Sums for each temperature, with those of further samples."""
    return [
        total + reliability(logits, labels, divisor)
        for total, divisor in zip(sums, divisors, strict=True)
    ]

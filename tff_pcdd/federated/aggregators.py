"""How the clients' changes of the shared weights become one, by name: TFF's own aggregators.

    mean        the mean by the method's weights
    robust      changes far larger than usual become zero, large ones are clipped, then the mean
    compressed  large tensors travel with few bits each
    secure      sums of whole numbers, so that the server needs to see none but the sum
    dp          differential privacy at the level of clients: each change is clipped, all count
                alike, noise is added to the sum

They are those of `tff.learning` and `tff.aggregators` with the same settings, but for a cohort
without samples, which changes nothing here and would divide by zero there.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import dp_accounting
import tensorflow_federated as tff

from tff_pcdd.options import OptionError

_NORM = tff.aggregators.PrivateQuantileEstimationProcess.no_noise

# Settings of tff.learning: how the largest usual entry of a change is followed, above which all of
# it becomes zero; the L2 norm to which changes are clipped; and the bound of what is summed
# securely, entry by entry.
_ZEROING = {
    "initial_estimate": 10.0,
    "target_quantile": 0.98,
    "learning_rate": math.log(10.0),
    "multiplier": 2.0,
    "increment": 1.0,
}
_CLIPPING = {"initial_estimate": 1.0, "target_quantile": 0.8, "learning_rate": 0.2}
_SECURE_BOUND = {
    "initial_estimate": 50.0,
    "target_quantile": 0.95,
    "learning_rate": 1.0,
    "multiplier": 2.0,
}
# Weights are summed as whole numbers from 0 to this.
_MAX_SECURE_WEIGHT = float(2**20 - 1)

# Spread of the noise on the number of changes that were clipped, per client of a cohort, where the
# norm adapts; tff.aggregators has no name for it.
_CLIPPED_COUNT_NOISE = 0.05

_FLOAT_BYTES = 4


@dataclasses.dataclass(frozen=True)
class Aggregation:
    """An aggregator and its settings; those of others mean nothing to it.

    Attributes:
        name: see the module's docstring.
        zeroing: of robust, compressed, secure: whether far too large changes become zero.
        clipping: of the same: whether large changes are clipped.
        bits: of compressed: bits of an entry.
        threshold: of compressed: tensors of more entries are compressed.
        noise_multiplier: of dp: standard deviation of the noise on the sum over the clip.
        clip: of dp: L2 norm to which a change is clipped, 0 to follow the median.
    """

    name: str = "mean"
    zeroing: bool | None = True
    clipping: bool | None = True
    bits: int | None = 8
    threshold: int | None = 20000
    noise_multiplier: float | None = 1.0
    clip: float | None = 1.0

    def factory(self, cohort_size: int):
        """TFF's aggregation factory.

        Args:
            cohort_size: clients in a round; dp divides by it, whoever takes part.

        Raises:
            OptionError: the cohort is too small for as much noise.
        """
        if self.name == "dp":
            return self._private(cohort_size)
        if self.name == "secure":
            total = tff.aggregators.SecureSumFactory(_NORM(**_SECURE_BOUND, secure_estimation=True))
            weights = tff.aggregators.SecureSumFactory(_MAX_SECURE_WEIGHT, 0.0)
            mean = tff.aggregators.MeanFactory(total, weights, no_nan_division=True)
        elif self.name == "compressed":
            total = tff.aggregators.EncodedSumFactory.quantize_above_threshold(
                self.bits, self.threshold
            )
            mean = tff.aggregators.MeanFactory(total, no_nan_division=True)
        else:
            mean = tff.aggregators.MeanFactory(no_nan_division=True)
        return mean if self.name == "mean" else self._bounded(mean)

    def _bounded(self, inner):
        """Zeroing, then clipping, before another aggregator; the first threshold is 21."""
        secure = self.name == "secure"
        count = tff.aggregators.SecureSumFactory(1, 0) if secure else None
        if self.clipping:
            norm = _NORM(**_CLIPPING, secure_estimation=secure)
            inner = tff.aggregators.clipping_factory(norm, inner, clipped_count_sum_factory=count)
        if self.zeroing:
            norm = _NORM(**_ZEROING, secure_estimation=secure)
            inner = tff.aggregators.zeroing_factory(norm, inner, zeroed_count_sum_factory=count)
        return inner

    def _private(self, cohort_size: int):
        private = tff.aggregators.DifferentiallyPrivateFactory
        if self.clip:
            return private.gaussian_fixed(self.noise_multiplier, cohort_size, self.clip)
        largest = 2 * _CLIPPED_COUNT_NOISE * cohort_size
        if self.noise_multiplier >= largest:
            raise OptionError(
                f"--dp_noise_multiplier={self.noise_multiplier} --dp_clip=0: with an adaptive clip "
                f"and {cohort_size} clients in a round it has to be less than {largest:g}; give "
                "less noise, more clients or a fixed clip"
            )
        return private.gaussian_adaptive(self.noise_multiplier, cohort_size)

    def check(self, method: str, update: Sequence, sums: Sequence[str]) -> None:
        """Refuses a method whose upload does not all pass through the aggregator.

        Args:
            method: its name.
            update: what clients send of the shared weights.
            sums: names of what they send beside it.

        Raises:
            OptionError: there is nothing to aggregate, or something beside it.
        """
        if self.name == "mean":
            return
        if not update:
            raise OptionError(f"--aggregator={self.name}: clients of {method} send no weights")
        if sums:
            raise OptionError(
                f"--aggregator={self.name}: clients of {method} also send {', '.join(sums)}, which "
                "would pass it by; choose --aggregator=mean or another method"
            )

    def upload_bytes(self, sizes: Sequence[int]) -> int:
        """What a client sends as the change of its weights, of tensors with so many entries."""
        return sum(self._tensor_bytes(size) for size in sizes)

    def _tensor_bytes(self, size: int) -> int:
        if self.name != "compressed" or size <= self.threshold:
            return size * _FLOAT_BYTES
        # With the smallest and the largest entry, between which the others are counted off.
        return math.ceil(size * self.bits / 8) + 2 * _FLOAT_BYTES

    def epsilon(self, num_clients: int, cohort_size: int, rounds: int, delta: float) -> float:
        """ε of (ε, δ)-differential privacy of the shared weights, of aggregator dp.

        Two federations are neighbours if they differ in what one client holds, which in the other
        counts for nothing. Cohorts are drawn without replacement; they may be known, or, where
        secrecy makes ε smaller, have to stay secret.

        Args:
            num_clients: clients of the federation.
            cohort_size: clients in a round.
            rounds: rounds that have been computed.
            delta: δ.

        Returns:
            Infinity without noise.
        """
        if not self.noise_multiplier:
            return math.inf
        events = [dp_accounting.GaussianDpEvent(self.noise_multiplier)]
        if cohort_size < num_clients:
            # Another client takes the place in a cohort of one that is not drawn, which moves the
            # sum by up to twice the clipping norm.
            replaced = dp_accounting.GaussianDpEvent(self.noise_multiplier / 2)
            events.append(
                dp_accounting.SampledWithoutReplacementDpEvent(num_clients, cohort_size, replaced)
            )
        return min(self._epsilon(event, rounds, delta) for event in events)

    @staticmethod
    def _epsilon(event: dp_accounting.DpEvent, rounds: int, delta: float) -> float:
        accountant = dp_accounting.rdp.RdpAccountant(
            neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
        )
        accountant.compose(dp_accounting.SelfComposedDpEvent(event, rounds))
        return accountant.get_epsilon(delta)

"""Client-level differential privacy: clipped changes, equal weights, noise on their sum."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from etils import epy

from tff_pcdd.errors import SettingError
from tff_pcdd.federated.aggregators.aggregator import Aggregator, register, registry
from tff_pcdd.settings import option

with epy.lazy_imports():
    import dp_accounting
    import tensorflow_federated as tff

if TYPE_CHECKING:
    from tff_pcdd.federated.upload import UploadSizes
    from tff_pcdd.methods.contract import Method

# An adaptive clipping norm is based on the number of clipped changes. This is the standard
# deviation of the noise on that number, divided by the number of clients in a cohort. It is the
# default of tff.aggregators, which does not export it.
_CLIPPED_COUNT_NOISE = 0.05


@register
@dataclasses.dataclass(frozen=True)
class DP(Aggregator):
    """The mean with differential privacy, as `tff.learning.dp_aggregator`."""

    name = "dp"
    equal_weights = True
    uniform_cohorts = True

    noise_multiplier: float = option(
        1.0,
        "Standard deviation of the noise on the sum of changes, divided by the clipping norm.",
        minimum=0,
    )
    clip: float = option(
        1.0,
        "L2 norm to which a client's change is clipped; 0 for a norm that adapts to the median of "
        "the changes' norms, which needs at least about 20 clients per round.",
        minimum=0,
    )
    delta: float = option(
        1e-5,
        "δ for which ε is reported; should be less than 1 / number of clients.",
        above=0,
        maximum=0.1,
    )

    @classmethod
    def prefix(cls) -> str:
        return "dp_"

    def factory(self, cohort_size: int) -> tff.aggregators.UnweightedAggregationFactory:
        """TFF's aggregation factory; it always divides the sum by `cohort_size`."""
        self.check_cohort(cohort_size)
        private = tff.aggregators.DifferentiallyPrivateFactory
        if self.clip:
            return private.gaussian_fixed(self.noise_multiplier, cohort_size, self.clip)
        return private.gaussian_adaptive(self.noise_multiplier, cohort_size)

    def check_cohort(self, cohort_size: int) -> None:
        limit = 2 * _CLIPPED_COUNT_NOISE * cohort_size
        if not self.clip and self.noise_multiplier >= limit:
            raise SettingError(
                "dp_noise_multiplier",
                self.noise_multiplier,
                f"must be less than {limit:g} with an adaptive clipping norm (dp_clip=0) and "
                f"{cohort_size} clients in a round; use less noise, more clients or a fixed norm",
            )

    def check(self, method: Method, upload: UploadSizes) -> None:
        super().check(method, upload)
        if method.uses_federation_counts:
            raise SettingError(
                registry.setting,
                self.name,
                f"with these settings, clients of {method.name} train with the class counts of all "
                "clients, which would not be private; choose other settings or another method",
            )
        if upload.statistics:
            raise SettingError(
                registry.setting,
                self.name,
                "the statistics of batch normalization would not be private; choose "
                "normalization=group, or a model without batch normalization",
            )

    def privacy(self, num_clients: int, cohort_size: int, rounds: int) -> dict[str, Any]:
        """ε and δ of the shared weights: `dp_epsilon`, None if it is infinite, and `dp_delta`."""
        epsilon = self.epsilon(num_clients, cohort_size, rounds)
        return {
            "dp_epsilon": epsilon if math.isfinite(epsilon) else None,
            "dp_delta": self.delta,
        }

    def epsilon(self, num_clients: int, cohort_size: int, rounds: int) -> float:
        """ε of (ε, δ)-differential privacy of the shared weights.

        Two federations are neighbors if they are equal except for one client, which contributes
        nothing in one of them. Cohorts are drawn without replacement. The result is the smaller of
        two values of ε: one that holds even if the cohorts are known, and one that is amplified by
        sampling and holds if they are secret.

        Returns:
            ε; infinity without noise.
        """
        if not self.noise_multiplier:
            return math.inf
        events = [dp_accounting.GaussianDpEvent(self.noise_multiplier)]
        if cohort_size < num_clients:
            # If the client is not drawn, another one takes its place in the cohort, which changes
            # the sum by up to twice the clipping norm.
            replaced = dp_accounting.GaussianDpEvent(self.noise_multiplier / 2)
            events.append(
                dp_accounting.SampledWithoutReplacementDpEvent(num_clients, cohort_size, replaced)
            )
        return min(self._epsilon(event, rounds) for event in events)

    def _epsilon(self, event: dp_accounting.DpEvent, rounds: int) -> float:
        accountant = dp_accounting.rdp.RdpAccountant(
            neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
        )
        accountant.compose(dp_accounting.SelfComposedDpEvent(event, rounds))
        return accountant.get_epsilon(self.delta)

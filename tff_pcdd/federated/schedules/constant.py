"""The same step size in all rounds."""

import dataclasses

from tff_pcdd.federated.schedules.schedule import Schedule, register


@register
@dataclasses.dataclass(frozen=True)
class Constant(Schedule):
    """The same step size in all rounds."""

    name = "constant"

    def _factor(self, number, num_rounds):
        return None

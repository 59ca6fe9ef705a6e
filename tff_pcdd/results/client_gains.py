"""What methods gain at each client, over training alone or over FedAvg."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tff_pcdd import findings, measures, text
from tff_pcdd.results import by_client
from tff_pcdd.results.by_client import ClientResult, of_method, paired
from tff_pcdd.results.run_results import ALONE
from tff_pcdd.tables import BASELINE, grouped


class ClientGain(NamedTuple):
    """What a method gains at a client, averaged over seeds.

    Attributes:
        gain: in percentage points.
        counts: whether it is more than chance, see `findings.counts`, with the same sign for every
            seed.
    """

    gain: float
    counts: bool


@dataclasses.dataclass(frozen=True)
class ClientGains:
    """What methods gain at each client over another method.

    Attributes:
        over: the other method.
        gains: by method and client.
        clients: the clients, the one with the lowest mean gain first.
        samples: the number of test samples of each client, in the run with the fewest.
        key: the accuracy of the methods' models, a key of summary.json.
        seeds: of how many seeds the clients are; 0 if all seeds have the same ones.
    """

    over: str
    gains: Mapping[str, Mapping[str, ClientGain]]
    clients: Sequence[str]
    samples: Mapping[str, int]
    key: str = "pa_final"
    seeds: int = 0

    @property
    def shown_over(self) -> str:
        return "training alone" if self.over == ALONE else self.over

    def lost(self, method: str) -> list[tuple[float, str]]:
        """The clients that lose by more than chance, with their gains."""
        own = self.gains.get(method, {})
        return [(each.gain, name) for name, each in own.items() if each.counts and each.gain < 0]

    def sentence(self, method: str) -> str:
        """Who gains and who loses with a method."""
        own = self.gains[method]
        models = f"With {method} ({measures.heading(self.key)})"
        won = sum(each.counts and each.gain > 0 for each in own.values()) or "none"
        lost = self.lost(method)
        compared = f"{self.shown_over} by more than chance"
        clients = text.plural(len(own), "client")
        if self.seeds:
            clients += f" of {text.plural(self.seeds, 'seed')}"
        if won == "none" and not lost:
            return f"{models}, none of {clients} differs from {compared}."
        loss = f"{len(lost) or 'none'} {'lose' if len(lost) > 1 else 'loses'}"
        names = f": {findings.listed_losses(lost)}" if lost else ""
        gain_or_gains = "gains" if won in (1, "none") else "gain"
        return f"{models}, {won} of {clients} {gain_or_gains} over {compared}; {loss}{names}."


def read(clients: Sequence[ClientResult]) -> ClientGains | None:
    """What methods gain at the clients of one partition: over training alone, or over FedAvg."""
    by_method = grouped((client.run[1], client) for client in clients)
    alone = any(client.values["over_local"] is not None for client in clients)
    over = ALONE if alone else BASELINE
    if not alone and BASELINE not in by_method:
        return None
    samples, gains = by_client.tested(clients), {}
    fedavg = of_method(by_method.get(BASELINE, ()), BASELINE, "pa")
    for method, of_it in by_method.items():
        own, others = of_method(of_it, method, "pa"), fedavg
        if alone:
            differences = of_method(of_it, method, "over_local")
            others = {
                place: own[place] - differences[place] for place in own if place in differences
            }
        if method != over and (found := paired(own, others)):
            gains[method] = {name: of_pairs(pairs, samples[name]) for name, pairs in found.items()}
    if not gains:
        return None
    names = {name for own in gains.values() for name in own}
    order = sorted(
        (name for name in samples if name in names),
        key=lambda name: statistics.fmean(own[name].gain for own in gains.values() if name in own),
    )
    return ClientGains(over, gains, order, samples, seeds=by_client.several_seeds(clients))


def of_pairs(pairs: Sequence[tuple[float, float]], samples: int) -> ClientGain:
    """The mean gain of a method at a client, from pairs of accuracies by seed."""
    agree = all(own > other for own, other in pairs) or all(own < other for own, other in pairs)
    own, other = (statistics.fmean(column) for column in zip(*pairs, strict=True))
    other = min(100.0, max(0.0, other))
    return ClientGain(own - other, agree and findings.counts(own, other, samples))

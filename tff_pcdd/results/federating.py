"""Whether federating pays: the best models that methods give to clients, beside training alone."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence

from tff_pcdd import measures, tables
from tff_pcdd.results import by_client
from tff_pcdd.results.by_client import Site
from tff_pcdd.results.gains import Gain, gain, units
from tff_pcdd.results.runs import ALONE, Results
from tff_pcdd.results.site_gains import SiteGain, SiteGains, of_pairs
from tff_pcdd.tables import BASELINE

# The accuracies of the models that a client may use, with their columns in clients.csv.
PERSONAL = {
    "pa_final": "pa",
    "pa_before_final": "pa_before",
    "pa_before_masked_final": "pa_before_masked",
}
_ALONE_KEY = "pa_final"


@dataclasses.dataclass(frozen=True)
class Federating:
    """The best models for clients, and the best shared model, beside training alone.

    Attributes:
        method: the method whose models are the best on the clients' own samples.
        key: which of its models, an accuracy among `PERSONAL`.
        values: their accuracy by unit.
        over: its gain over PA of training alone.
        over_baseline: its gain over FedAvg's PA after local training; None if unknown.
        baseline_over: the gain of those over PA of training alone; None if unknown.
        sample: the points that one test sample changes; 0 if unknown.
        sites: its gain at each client; None for PA after local training, whose gains an answer has
            anyway, and if unknown.
        shared: the method with the best shared model; empty without one.
        shared_values: GA of that model by unit.
        shared_over: its gain over GA of training alone; None if unknown.
        shared_at_clients: the gain of the shared model on the clients' own samples; None if
            unknown.
    """

    method: str
    key: str
    values: Sequence[float]
    over: Gain
    over_baseline: Gain | None
    baseline_over: Gain | None
    sample: float = 0.0
    sites: SiteGains | None = None
    shared: str = ""
    shared_values: Sequence[float] = ()
    shared_over: Gain | None = None
    shared_at_clients: Gain | None = None

    @property
    def recommended(self) -> tuple[str, str]:
        """A method, and which of its models clients take.

        FedAvg's if no better ones are known for sure, and they are not worse than training alone.
        """
        if self._is_worse(self.over):
            return ALONE, _ALONE_KEY
        ahead, baseline = self.over_baseline, self.baseline_over
        if ahead is None or ahead.is_more_than(self.sample):
            return self.method, self.key
        if baseline is not None and self._is_worse(baseline):
            return self.method, self.key
        return BASELINE, _ALONE_KEY

    def _is_worse(self, over: Gain) -> bool:
        return over.is_more_than(self.sample) and over.mean < 0

    @property
    def heading(self) -> str:
        """Whether it pays for clients."""
        if not self.over.is_more_than(self.sample):
            return "Federating: undecided whether it pays on the clients' own samples."
        if self._is_worse(self.over):
            return "Federating: training alone is better on the clients' own samples."
        return "Federating: it pays on the clients' own samples."

    @property
    def sentence(self) -> str:
        """The numbers of the heading, and what the shared model has over training alone."""
        parts = [
            f"The best models there are {self.method}'s: {measures.heading(self.key)} "
            f"{tables.spread(self.values, 1)} %, {self.over.beside('training alone', self.sample)}."
        ]
        if self.sites is not None:
            parts.append(self.sites.sentence(self.method))
        if self.shared_over is not None:
            where = ""
            if self.shared_at_clients is not None:
                where = f", and {self.shared_at_clients.beside('it')} on the clients' own samples"
            parts.append(
                f"On the whole test set, the shared model of {self.shared} has GA "
                f"{tables.spread(self.shared_values, 1)} %, "
                f"{self.shared_over.beside('training alone')}{where}."
            )
        return " ".join(parts)


def read(
    results: Results,
    methods: Sequence[str],
    personal: str,
    shared: str,
    clients: Sequence[Site],
    sample: float,
) -> Federating | None:
    """Whether federating pays; None if no client has trained alone.

    Args:
        results: the runs on one partition, or on several.
        methods: the methods that federate.
        personal: the method with the best PA after local training; empty without one.
        shared: the method with the best shared model; empty without one.
        clients: the clients of the runs; empty if unknown.
        sample: the points of PA that one test sample changes; 0 if unknown.
    """
    alone = results.of(method=ALONE)
    found = {
        (method, key): pair
        for method in methods
        if not (own := results.of(method=method)).diverged
        for key in PERSONAL
        if (pair := _beside(own, key, alone, _ALONE_KEY, results.partitions)) is not None
    }
    most = max((over.units for _, over in found.values()), default=0)
    complete = {place: pair for place, pair in found.items() if pair[1].units == most}
    if not complete:
        return None
    means = {place: statistics.fmean(values) for place, (values, _) in complete.items()}
    best = [place for place in means if tables.is_equal(means[place], max(means.values()))]
    # Of several with the same mean, the model after local training, and that of `personal`.
    order = [*PERSONAL]
    method, key = min(best, key=lambda each: (order.index(each[1]), each[0] != personal))
    values, over = complete[method, key]
    baseline, own = results.of(method=BASELINE), results.of(method=method)
    beside_baseline = _beside(own, key, baseline, _ALONE_KEY, results.partitions)
    baseline_over = _beside(baseline, _ALONE_KEY, alone, _ALONE_KEY, results.partitions)
    globally: tuple[Sequence[float], Gain | None] | None = None
    if shared:
        own = results.of(method=shared)
        globally = _beside(own, "ga_final", alone, "ga_final", results.partitions)
    return Federating(
        method,
        key,
        values,
        over,
        None if beside_baseline is None else beside_baseline[1],
        None if baseline_over is None else baseline_over[1],
        sample,
        _at_clients(clients, method, PERSONAL[key]) if key != _ALONE_KEY else None,
        shared,
        () if globally is None else globally[0],
        None if globally is None else globally[1],
        _shared_at_clients(clients, shared),
    )


def _beside(
    own: Results, key: str, others: Results, other_key: str, partitions: Sequence[str]
) -> tuple[list[float], Gain] | None:
    """The values of a method by unit, and their gain over those of another one."""
    pairs = [
        (own.of(partition=name).by_seed(key), others.of(partition=name).by_seed(other_key))
        for name in partitions
    ]
    over = gain(units([tables.differences(*pair) for pair in pairs]))
    values = units([[*mine.values()] for mine, _ in pairs])
    return None if over is None else (values, over)


def _of(clients: Sequence[Site], method: str, column: str) -> dict[tuple[str, str], float]:
    """A column of clients.csv by the client's name and the seed, where it is defined."""
    return {
        (site.name, site.run[2]): value
        for site in clients
        if site.run[1] == method and (value := site.values.get(column)) is not None
    }


def _at_clients(clients: Sequence[Site], method: str, column: str) -> SiteGains | None:
    """What a method's models gain over training alone at each client."""
    own, alone = _of(clients, method, column), _of(clients, ALONE, "pa")
    pairs: dict[str, list[tuple[float, float]]] = {}
    for place in own:
        if place in alone:
            pairs.setdefault(place[0], []).append((own[place], alone[place]))
    if not pairs:
        return None
    samples = by_client.tested(clients)
    gains: Mapping[str, SiteGain] = {
        name: of_pairs(found, samples[name]) for name, found in pairs.items()
    }
    return SiteGains(ALONE, {method: gains}, [*gains], samples)


def _shared_at_clients(clients: Sequence[Site], method: str) -> Gain | None:
    """What the shared model gains over training alone on the clients' own samples, by seed."""
    own, alone = _of(clients, method, "ga"), _of(clients, ALONE, "pa")
    by_seed: dict[str, list[float]] = {}
    for place in own:
        if place in alone:
            by_seed.setdefault(place[1], []).append(own[place] - alone[place])
    return gain([statistics.fmean(found) for found in by_seed.values()])

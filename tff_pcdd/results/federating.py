"""Whether federating pays: the best models that methods give to clients, beside training alone."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

from tff_pcdd import tables
from tff_pcdd.results import by_client
from tff_pcdd.results.by_client import ClientResult, of_method, paired
from tff_pcdd.results.client_gains import ClientGains, of_pairs
from tff_pcdd.results.gains import Gain, gain, gain_over, is_ahead, units
from tff_pcdd.results.run_results import ALONE, Results
from tff_pcdd.tables import BASELINE, grouped

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
        surest: if that is not certain, the best models whose gain is, by method and key, unless
            they are worse than training alone; None if there are none.
        baseline_over: the gain of those over PA of training alone; None if unknown.
        sample: the points that one test sample changes; 0 if unknown.
        at_clients: the gain of the recommended models at each client; None for PA after local
            training, whose gains an answer has anyway, and if unknown.
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
    surest: tuple[str, str] | None = None
    sample: float = 0.0
    at_clients: ClientGains | None = None
    shared: str = ""
    shared_values: Sequence[float] = ()
    shared_over: Gain | None = None
    shared_at_clients: Gain | None = None

    @property
    def recommended(self) -> tuple[str, str]:
        """A method, and which of its models clients take.

        FedAvg's if no better ones are known for certain, unless they are worse than training alone:
        for certain, or on average where the best ones are better than training alone for certain.
        """
        if self._is_worse(self.over):
            return ALONE, _ALONE_KEY
        ahead, baseline = self.over_baseline, self.baseline_over
        if ahead is None or ahead.is_more_than(self.sample):
            return self.method, self.key
        if self.surest is not None:
            return self.surest
        pays = self.over.is_more_than(self.sample)
        if baseline is not None and (self._is_worse(baseline) or (pays and baseline.mean < 0)):
            return self.method, self.key
        return BASELINE, _ALONE_KEY

    def _is_worse(self, over: Gain) -> bool:
        return over.is_more_than(self.sample) and over.mean < 0


def read(
    results: Results,
    methods: Sequence[str],
    personal: str,
    shared: str,
    clients: Sequence[ClientResult],
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
    places = [
        (method, key)
        for method in methods
        if not results.of(method=method).diverged
        for key in PERSONAL
        if _by_unit(results, (method, key))
    ]
    alone, baseline, shared_one = (ALONE, _ALONE_KEY), (BASELINE, _ALONE_KEY), (shared, "ga_final")
    found = {place: each for place in places if (each := _over(results, 1, place, alone))}
    most = max((each.units for each in found.values()), default=0)
    values = {place: _by_unit(results, place) for place in found if found[place].units == most}
    if not values:
        return None
    # As where methods are compared by PA after local training, so that the intervals are the same:
    # they hold together for all methods, of which one is chosen.
    compared = {method for method, _ in values}

    def over(own: tuple[str, str], other: tuple[str, str]) -> Gain | None:
        return _over(results, len(compared) - (other[0] in compared), own, other)

    means = {place: statistics.fmean(own) for place, own in values.items()}
    best = [place for place in means if tables.is_equal(means[place], max(means.values()))]
    # Of several with the same mean, the model after local training, and that of `personal`.
    order = [*PERSONAL]
    method, key = min(best, key=lambda each: (order.index(each[1]), each[0] != personal))
    sure = [
        place
        for place in values
        if is_ahead(over(place, baseline), sample) and not is_ahead(over(alone, place), sample)
    ]
    own = over((method, key), alone)
    assert own is not None, "it is among `found`"
    pays = Federating(
        method=method,
        key=key,
        values=values[method, key],
        over=own,
        over_baseline=over((method, key), baseline),
        baseline_over=over(baseline, alone),
        surest=max(sure, key=means.__getitem__, default=None),
        sample=sample,
        shared=shared,
        shared_values=_by_unit(results, shared_one) if shared else (),
        shared_over=_over(results, len(methods), shared_one, (ALONE, "ga_final"))
        if shared
        else None,
        shared_at_clients=_shared_at_clients(clients, shared, len(methods)),
    )
    method, key = pays.recommended
    if key == _ALONE_KEY:
        return pays
    return dataclasses.replace(pays, at_clients=_at_clients(clients, method, key))


def _over(
    results: Results, among: int, own: tuple[str, str], other: tuple[str, str]
) -> Gain | None:
    """The gain of a method's accuracy over another one's, each given by method and key."""
    return gain_over(results.by_partition(*own), results.by_partition(*other), among)


def _by_unit(results: Results, place: tuple[str, str]) -> list[float]:
    """A method's accuracy by unit."""
    return units([[*values.values()] for values in results.by_partition(*place)])


def _at_clients(clients: Sequence[ClientResult], method: str, key: str) -> ClientGains | None:
    """What a method's models gain over training alone at each client, by one of `PERSONAL`."""
    own, alone = of_method(clients, method, PERSONAL[key]), of_method(clients, ALONE, "pa")
    samples, pairs = by_client.tested(clients), paired(own, alone)
    gains = {name: of_pairs(found, samples[name]) for name, found in pairs.items()}
    seeds = by_client.several_seeds(clients)
    return ClientGains(ALONE, {method: gains}, [*gains], samples, key, seeds) if gains else None


def _shared_at_clients(clients: Sequence[ClientResult], method: str, among: int) -> Gain | None:
    """What the shared model gains over training alone on the clients' own samples, by seed."""
    own, alone = of_method(clients, method, "ga"), of_method(clients, ALONE, "pa")
    by_seed = grouped((place[1], own[place] - alone[place]) for place in own if place in alone)
    return gain([statistics.fmean(found) for found in by_seed.values()], among)

"""Methods on one-dimensional parabolas in plain Python, stated without the package.

Client k has SIZES[k] samples and the loss (w - MINIMA[k])²/2, so each of its steps has the gradient
w - MINIMA[k], whatever the batch. Sizes and therefore numbers of steps are unequal, cohorts are
parts of the federation, one client is empty and two never take part. A statistic of the model
counts training steps.

Each method is a generator that yields a `Round` for every cohort.
"""

from typing import NamedTuple

MINIMA = [0, 4, 1, 3, 2, 0, 0]
SIZES = [2, 7, 5, 4, 0, 6, 6]
COHORTS = [[0, 1, 2], [1, 3], [0, 4, 3, 2], [2], [4], [0, 1, 2, 3], [3, 1]]
BATCH = 3
START = 1.0
EVERYBODY = range(len(SIZES))


class Round(NamedTuple):
    """The state after a round.

    Attributes:
        weight: the global number.
        steps: the averaged number of training steps.
        own: the numbers that the clients keep, for methods that have them.
        tuned: the personal models of all clients after their local epochs.
    """

    weight: float
    steps: float
    own: list[float]
    tuned: list[float]


class Solver(NamedTuple):
    """SGD of one client in one round, with momentum from zero and coupled weight decay."""

    rate: float
    epochs: int
    momentum: float
    decay: float

    def steps(self, client):
        """Batches of BATCH samples; a last one of a single sample only if it is all there is."""
        whole, rest = SIZES[client] // BATCH, SIZES[client] % BATCH
        return self.epochs * (whole + (rest == 2 or (rest == 1 and whole == 0)))

    def effective_steps(self, client):
        """The sum of the factors with which the gradients enter the change, over the rate."""
        factors = [0.0] * self.steps(client)
        for first in range(len(factors)):
            for later in range(first, len(factors)):
                factors[first] += self.momentum ** (later - first)
        return sum(factors)

    def solve(self, client, w, extra=lambda w: 0.0):
        """The number after a round that starts at w; `extra` is added to the gradient."""
        velocity = 0.0
        for _ in range(self.steps(client)):
            gradient = w - MINIMA[client] + extra(w) + self.decay * w
            velocity = self.momentum * velocity + gradient
            w -= self.rate * velocity
        return w


def mean(values, weights):
    """The weighted mean of two dicts over clients; None without weight."""
    total = sum(weights.values())
    return sum(weights[k] * values[k] for k in values) / total if total else None


def by_samples(cohort):
    """The numbers of samples as weights."""
    return {k: SIZES[k] for k in cohort}


def alike(cohort):
    """The same weight for each client that has samples."""
    return {k: float(SIZES[k] > 0) for k in cohort}


def _averaging(solver, weighting, extra=lambda w, start: 0.0):
    """Means of what the cohort's clients find; the personal model is fine-tuned without `extra`."""
    w, counter = START, 0.0
    for cohort in COHORTS:
        found = {k: solver.solve(k, w, lambda x, start=w: extra(x, start)) for k in cohort}
        counter += mean({k: solver.steps(k) for k in cohort}, weighting(cohort)) or 0
        new = mean(found, weighting(cohort))
        w = w if new is None else new
        yield Round(w, counter, [], [solver.solve(k, w) for k in EVERYBODY])


def fedavg(solver, weighting):
    return _averaging(solver, weighting)


def fedprox(solver, weighting, mu):
    return _averaging(solver, weighting, lambda x, start: mu * (x - start))


def fednova(solver, weighting):
    w, counter = START, 0.0
    for cohort in COHORTS:
        weights = weighting(cohort)
        if any(weights.values()):
            lengths = {k: solver.effective_steps(k) for k in cohort}
            slopes = {k: (solver.solve(k, w) - w) / (lengths[k] or 1) for k in cohort}
            w += mean(lengths, weights) * mean(slopes, weights)
            counter += mean({k: solver.steps(k) for k in cohort}, weights)
        yield Round(w, counter, [], [solver.solve(k, w) for k in EVERYBODY])


def of_all(weights, weighting):
    """A cohort's weights as shares of those of all clients."""
    total = sum(weighting(EVERYBODY).values())
    return {k: weight / total for k, weight in weights.items()}


def feddyn(solver, weighting, alpha):
    w, counter, h = START, 0.0, 0.0
    dual = [0.0 for _ in EVERYBODY]
    for cohort in COHORTS:
        weights = weighting(cohort)
        found = {
            k: solver.solve(k, w, lambda x, k=k, start=w: alpha * (x - start) - dual[k])
            for k in cohort
        }
        for k in cohort:
            dual[k] -= alpha * (found[k] - w)
            h -= alpha * of_all(weights, weighting)[k] * (found[k] - w)
        if any(weights.values()):
            counter += mean({k: solver.steps(k) for k in cohort}, weights)
            w = mean(found, weights) - h / alpha
        yield Round(w, counter, list(dual), [solver.solve(k, w) for k in EVERYBODY])


def feddc(solver, weighting, alpha, control):
    w, counter = START, 0.0
    drift, controls = [0.0 for _ in EVERYBODY], [0.0 for _ in EVERYBODY]
    shares = of_all(weighting(EVERYBODY), weighting)  # of all clients, in the cohort or not
    for cohort in COHORTS:
        common = sum(shares[k] * controls[k] for k in EVERYBODY)
        present = [k for k in cohort if SIZES[k]]
        found, renewed = {}, list(controls)
        for k in present:
            target, tilt = w - drift[k], common - controls[k]
            found[k] = solver.solve(k, w, lambda x, t=target, g=tilt: alpha * (x - t) + g)
            slope = (w - found[k]) / (solver.rate * solver.effective_steps(k))
            renewed[k] = {"paper": slope, "code": slope - tilt, "none": 0.0}[control]
        for k in present:
            drift[k] += found[k] - w
        controls = renewed
        if present:
            counter += mean({k: solver.steps(k) for k in present}, weighting(present))
            w = mean(found, weighting(present)) + sum(shares[k] * drift[k] for k in EVERYBODY)
        yield Round(w, counter, list(drift), [solver.solve(k, w) for k in EVERYBODY])


def scaffold(solver, weighting, server_step):
    w, counter, common = START, 0.0, 0.0
    controls = [0.0 for _ in EVERYBODY]
    for cohort in COHORTS:
        present = [k for k in cohort if SIZES[k]]
        found, renewed = {}, list(controls)
        for k in present:
            tilt = common - controls[k]
            found[k] = solver.solve(k, w, lambda x, g=tilt: g)
            renewed[k] = (w - found[k]) / (solver.rate * solver.effective_steps(k)) - tilt
        share = of_all(weighting(EVERYBODY), weighting)
        common += sum(share[k] * (renewed[k] - controls[k]) for k in present)
        controls = renewed
        if present:
            counter += mean({k: solver.steps(k) for k in present}, weighting(present))
            w += server_step * (mean(found, weighting(present)) - w)
        yield Round(w, counter, list(controls), [solver.solve(k, w) for k in EVERYBODY])


def ditto(solver, weighting, pull):
    own, start = [START for _ in EVERYBODY], START
    for cohort, after in zip(COHORTS, _averaging(solver, weighting), strict=True):
        for k in cohort:
            own[k] = solver.solve(k, own[k], lambda x, start=start: pull * (x - start))
        start = after.weight
        yield after._replace(own=list(own), tuned=list(own))


def apfl(solver, weighting, alpha, adaptive):
    """The client's own number v and its share α move with the local number of the same batch."""
    own, shares, start = [START for _ in EVERYBODY], [alpha for _ in EVERYBODY], START
    for cohort, after in zip(COHORTS, _averaging(solver, weighting), strict=True):
        for k in cohort:
            w, v, share, w_speed, v_speed = start, own[k], shares[k], 0.0, 0.0
            for _ in range(solver.steps(k)):
                slope = share * v + (1 - share) * w - MINIMA[k]
                w_speed = solver.momentum * w_speed + w - MINIMA[k] + solver.decay * w
                v_speed = solver.momentum * v_speed + share * slope + solver.decay * v
                if adaptive:
                    share = min(1.0, max(0.0, share - solver.rate * (v - w) * slope))
                w, v = w - solver.rate * w_speed, v - solver.rate * v_speed
            own[k], shares[k] = v, share
        start = after.weight
        mixed = [shares[k] * own[k] + (1 - shares[k]) * start for k in EVERYBODY]
        yield after._replace(own=list(own), tuned=mixed)


def pfedme(solver, weighting, pull, inner_steps, inner_learning_rate, beta):
    """Each step on w follows some steps on θ; the statistic counts those on θ."""
    w, counter = START, 0.0
    own = [START for _ in EVERYBODY]
    for cohort in COHORTS:
        found = {}
        for k in cohort:
            local, theta, speed = w, w, 0.0
            for _ in range(solver.steps(k)):
                for _ in range(inner_steps):
                    theta -= inner_learning_rate * (theta - MINIMA[k] + pull * (theta - local))
                speed = solver.momentum * speed + pull * (local - theta) + solver.decay * local
                local -= solver.rate * speed
            found[k] = local
            if SIZES[k]:
                own[k] = theta
        counter += mean({k: inner_steps * solver.steps(k) for k in cohort}, weighting(cohort)) or 0
        new = mean(found, weighting(cohort))
        w = w if new is None else (1 - beta) * w + beta * new
        yield Round(w, counter, list(own), list(own))


def fedala(solver, weighting, weight_learning_rate, weight_epochs, layers):
    """Clients start between the received and their last number, once they have one."""
    w, counter = START, 0.0
    own, shares, trained = [0.0 for _ in EVERYBODY], [1.0 for _ in EVERYBODY], set()

    def begin(k, w):
        return (own[k] if k in trained else w), shares[k]

    def learn(k, w):
        last, share = begin(k, w)
        for _ in range(weight_epochs * solver.steps(k) // solver.epochs):
            slope = last + share * (w - last) - MINIMA[k]
            share = min(1.0, max(0.0, share - weight_learning_rate * slope * (w - last)))
        return share, solver.solve(k, last + share * (w - last))

    for cohort in COHORTS:
        found = {}
        for k in cohort:
            shares[k], found[k] = learn(k, w)
        for k in cohort:
            own[k] = found[k]
            if SIZES[k]:
                trained.add(k)
        counter += mean({k: solver.steps(k) for k in cohort}, weighting(cohort)) or 0
        new = mean(found, weighting(cohort))
        w = w if new is None else new
        yield Round(w, counter, list(own), [learn(k, w)[1] for k in EVERYBODY])

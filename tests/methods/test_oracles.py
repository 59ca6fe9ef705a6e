"""Methods with state against programs of their own: unequal sizes, partial cohorts, momentum."""

import numpy as np
import pytest

from tests.methods import parabola_oracle, quadratic

PARABOLAS = [
    ("fedavg", {}),
    ("fedprox", {"mu": 0.5}),
    ("fednova", {}),
    ("feddyn", {"alpha": 0.4}),
    ("feddc", {"alpha": 0.4, "control": "code"}),
    ("feddc", {"alpha": 0.4, "control": "paper"}),
    ("feddc", {"alpha": 0.4, "control": "none"}),
    ("ditto", {"pull": 0.7}),
]


@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.05)])
@pytest.mark.parametrize(("name", "options"), PARABOLAS)
def test_rounds_on_parabolas(monkeypatch, name, options, momentum, decay):
    """The global and the personal numbers after every round, to seven digits or so."""
    oracle = parabola_oracle
    solver = oracle.Solver(rate=0.07, epochs=3, momentum=momentum, decay=decay)
    settings = {"rate": solver.rate, "epochs": solver.epochs, "momentum": momentum, "decay": decay}
    spec = quadratic.training_spec(
        monkeypatch, name, oracle.START, clients=len(oracle.SIZES), **settings, **options
    )
    federation = quadratic.Federation(spec, oracle.MINIMA, oracle.SIZES)
    rounds = getattr(oracle, name)(solver, **options)
    for cohort, expected in zip(oracle.COHORTS, rounds, strict=True):
        federation.round(cohort)
        actual = [*federation.weights, federation.steps]
        np.testing.assert_allclose(actual, expected[:2], rtol=2e-6, atol=1e-6)
        if expected.own:
            own = [federation.kept(k) for k in oracle.EVERYBODY]
            np.testing.assert_allclose(own, expected.own, rtol=2e-6, atol=2e-6)
    # The personal models of the last round, also of clients that never took part.
    tuned = [federation.personal_number(k) for k in oracle.EVERYBODY]
    np.testing.assert_allclose(tuned, expected.tuned, rtol=2e-6, atol=1e-6)

"""Sweeps over methods: the step sizes by the clients' optimizer, and what is printed at the end."""

import json

import pytest

from tests.cli.conftest import parsed
from tff_pcdd import studies
from tff_pcdd.cli import method_grids, sweep


def rates(*arguments):
    """The learning rates of every point, as the runs have them, and their texts."""
    both = ("--algorithms=fedavg,fedprox", "--validation_fraction=0.2")
    flags = parsed(sweep, *both, *arguments)
    points = method_grids.points(flags, method_grids.read(flags))
    assert set(points) == {"fedavg", "fedprox"}
    for point in [*points["fedavg"], *points["fedprox"]]:
        text = point.settings["client_learning_rate"]
        for config in (*point.configs, *point.finals):
            assert config.training.optimizer.learning_rate == float(text)
    tried = [point.settings["client_learning_rate"] for point in points["fedavg"]]
    assert {point.settings["client_learning_rate"] for point in points["fedprox"]} == set(tried)
    return tried


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        ("sgd", ["0.003", "0.01", "0.03", "0.1"]),
        ("adam", ["0.0003", "0.001", "0.003", "0.01"]),
        ("adamw", ["0.0003", "0.001", "0.003", "0.01"]),
    ],
)
def test_learning_rates_lie_around_the_default_of_the_optimizer(optimizer, expected):
    assert rates(f"--client_optimizer={optimizer}") == expected


def test_named_learning_rates_are_taken_as_they_are():
    named = rates("--client_optimizer=adam", "--grid=client_learning_rate=0.02,0.05")
    assert named == ["0.02", "0.05"]


@pytest.mark.parametrize(
    ("flags", "stops", "rounds"),
    [
        # Four learning rates do not compete.
        ((), False, 4 * 8),
        # Of four settings, one goes on after 4 of 8 rounds.
        (("--rungs=0.5", "--halving=all", "--reduction=4"), True, 4 * 4 + 4),
        (
            ("--rungs=0.5", "--halving=all", "--reduction=4", "--criterion=va_balanced"),
            True,
            4 * 4 + 4,
        ),
        (("--rungs=0.5", "--halving=all", "--reduction=4", "--criterion=va_personal"), True, 4 * 8),
        (("--rungs=",), False, 4 * 8),
    ],
    ids=["default", "global", "balanced", "personal", "no rungs"],
)
def test_a_dry_run_ends_with_the_size_of_the_sweep(flags, stops, rounds, call_here, tmp_path):
    given = ("--algorithms=fedavg", "--rounds=8", "--validation_fraction=0.2", *flags)
    status, out, err = call_here("sweep", "--dry_run", *given, f"--output_dir={tmp_path / 'out'}")
    assert status == 0, err
    *lines, last = out.splitlines()
    assert len(lines) == 4
    early = ", some of which stop early" if stops else ""
    assert last == (
        f"4 settings with seed 0{early}, then 3 final runs with seeds 1, 2, 3; "
        f"at most {rounds + 3 * 8} rounds"
    )


@pytest.mark.parametrize(
    ("recorded", "flags", "among"),
    [
        (None, (), "same_rate"),
        # Of a call of an earlier version, and of one that was ended before a result.
        ("{}", (), "all"),
        ('{"halving": "all"}', (), "all"),
        ('{"halving": "same_rate"}', (), "same_rate"),
        ("{}", ("--halving=same_rate",), "same_rate"),
        ("{}", ("--overwrite",), "same_rate"),
    ],
)
def test_a_sweep_goes_on_as_it_began(recorded, flags, among, call_here, monkeypatch, tmp_path):
    seen = {}

    def sweep_methods(points, directory, options, *, halving, **others):
        seen["among"] = halving.among
        return studies.MethodSweep("", {}, [])

    monkeypatch.setattr(studies, "sweep_methods", sweep_methods)
    record = tmp_path / "calls.jsonl"
    if recorded is not None:
        began = {"started": "now", "process": 1, **json.loads(recorded)}
        record.write_text(f'{json.dumps(began)}\n{{"ended": "then", "process": 1}}\n')
    given = ("--algorithms=fedavg", "--validation_fraction=0.2", f"--output_dir={tmp_path}")
    status, _, err = call_here("sweep", *given, *flags)
    assert status == 0, err
    last = [json.loads(line) for line in record.read_text().splitlines()][-2]
    assert seen["among"] == last["halving"] == among


def test_a_sweep_of_before_calls_were_recorded_goes_on_as_it_began(
    call_here, monkeypatch, tmp_path
):
    (tmp_path / "sweep.csv").write_text("algorithm\n")
    given = ("--algorithms=fedavg", "--validation_fraction=0.2", f"--output_dir={tmp_path}")
    status, out, err = call_here("sweep", "--dry_run", *given)
    assert status == 0, err
    assert "some of which stop early" in out


def test_a_damaged_record_of_calls_is_refused(call_here, tmp_path):
    (tmp_path / "calls.jsonl").write_text("{")
    given = ("--algorithms=fedavg", "--validation_fraction=0.2", f"--output_dir={tmp_path}")
    status, _, err = call_here("sweep", "--dry_run", *given)
    assert status == 2
    (line,) = err.splitlines()
    assert f"{tmp_path}/calls.jsonl is damaged (" in line
    assert call_here("sweep", "--dry_run", "--halving=all", *given)[0] == 0


def test_a_sweep_that_chooses_nothing_says_so(call_here, monkeypatch, tmp_path):
    result = studies.MethodSweep("| no setting |", {}, [])
    monkeypatch.setattr(studies, "sweep_methods", lambda *args, **options: result)
    given = ("--algorithms=fedavg", "--validation_fraction=0.2", f"--output_dir={tmp_path}")
    status, out, err = call_here("sweep", *given)
    assert status == 0, err
    last = f"nothing was chosen, because no run is usable; tables in {tmp_path}"
    assert out.splitlines() == ["| no setting |", "", last]
    assert "report" not in err

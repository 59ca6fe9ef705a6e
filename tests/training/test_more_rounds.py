"""More rounds for a run that has finished, or not: as if they had been planned from the start."""

import dataclasses

import pytest

from tests.data.refusals import refuses
from tests.training.runs import CONFIG, assert_same_run, stopped_in_round
from tff_pcdd.errors import DataError
from tff_pcdd.experiment import planning
from tff_pcdd.experiment.history import History
from tff_pcdd.training import ExperimentConfig, manifests, run_directory, run_experiment
from tff_pcdd.training.file_names import answer_files

pytestmark = pytest.mark.usefixtures("shared_computations")

FEWER = CONFIG.with_settings(rounds=2)


def assert_same_results(directory, other):
    assert_same_run(directory, other)
    for name in ("config.json", "signature.json", *answer_files(predictions=True)):
        paths = [folder / name for folder in (directory, other)]
        assert paths[0].exists() == paths[1].exists()
        assert not paths[0].exists() or paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize("client_store", ["memory", "disk"])
def test_a_finished_run_goes_on(client_store, unbroken, options, tmp_path):
    options = dataclasses.replace(options, client_store=client_store)
    first = run_experiment(FEWER, tmp_path, dataclasses.replace(options, predictions=True))
    assert first["rounds"] == 2
    run_experiment(CONFIG, tmp_path, options)
    assert_same_results(tmp_path, unbroken)
    # Finished, it is only read.
    (tmp_path / "checkpoints").rename(tmp_path / "plots" / "elsewhere")
    assert run_experiment(CONFIG, tmp_path, options)["rounds"] == 4


def test_an_unfinished_run_goes_on_too(unbroken, options, tmp_path):
    with stopped_in_round(2):
        run_experiment(CONFIG.with_settings(rounds=3), tmp_path, options)
    run_experiment(CONFIG, tmp_path, options)
    assert_same_results(tmp_path, unbroken)


@pytest.mark.parametrize("evaluation", [{"eval_every": 3}, {"personal_eval_every": 0}])
def test_the_old_last_round_is_evaluated_like_any_other(evaluation, options, tmp_path, caplog):
    """Also if the process is stopped right after the run has become an unfinished one."""
    longer = CONFIG.with_settings(**evaluation)
    run_experiment(longer, tmp_path / "whole", options)
    run_experiment(longer.with_settings(rounds=2), tmp_path / "run", options)
    assert "computed again" not in caplog.text
    with stopped_in_round(3):
        run_experiment(longer, tmp_path / "run", options)
    assert (
        "round 2, the last one of 2 planned rounds, is computed again: in 4 rounds it is evaluated "
        "differently"
    ) in caplog.text
    assert not (tmp_path / "run" / "summary.json").exists()
    run_experiment(longer, tmp_path / "run", options)
    assert_same_results(tmp_path / "run", tmp_path / "whole")


def test_without_an_earlier_checkpoint_that_round_stays_and_is_refused(options, tmp_path):
    longer = CONFIG.with_settings(personal_eval_every=0)
    options = dataclasses.replace(options, keep_checkpoints=1)
    run_experiment(longer.with_settings(rounds=2), tmp_path, options)
    with refuses("rounds", "the only checkpoint in .* is that of round 2, .* `overwrite`$"):
        run_experiment(longer, tmp_path, options)
    assert run_experiment(longer.with_settings(rounds=2), tmp_path, options)["rounds"] == 2


def contents(directory):
    """All files of a run, but for what locks it."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("refused", ["store", "data"])
def test_a_refused_continuation_leaves_the_run_as_it_was(rounds, refused, options, tmp_path):
    """Also after a single round, which would be computed again."""
    longer = CONFIG.with_settings(personal_eval_every=0)
    run_experiment(longer.with_settings(rounds=rounds), tmp_path, options)
    before = contents(tmp_path)
    assert "summary.json" in before
    if refused == "store":
        with refuses("client_store", "keeps its client states in the other store, memory"):
            run_experiment(longer, tmp_path, dataclasses.replace(options, client_store="disk"))
    else:
        other = longer.data.build()
        swapped = dataclasses.replace(other, clients=other.clients[::-1])
        with pytest.raises(DataError, match="was written with other data"):
            run_experiment(longer, tmp_path, options, federation=swapped)
    assert contents(tmp_path) == before


def test_a_round_is_not_forgotten_for_a_damaged_one(options, tmp_path):
    longer = CONFIG.with_settings(personal_eval_every=0)
    run_experiment(longer.with_settings(rounds=2), tmp_path, options)
    (tmp_path / "checkpoints" / "round_000001.npz").write_bytes(b"cut")
    before = contents(tmp_path)
    with refuses("rounds", "the only intact checkpoint in .* is that of round 2"):
        run_experiment(longer, tmp_path, options)
    assert contents(tmp_path) == before


def test_the_rounds_of_a_run_are_not_lowered(unbroken):
    with refuses("output_dir", r"different settings: rounds \(there 4, here 2\)"):
        run_directory.check_directory(unbroken, FEWER, overwrite=False)


def test_a_method_with_a_schedule_is_refused(tmp_path):
    planned = ExperimentConfig.from_settings(algorithm="fedproc", rounds=10)
    run_directory.write_config(tmp_path, planned)
    way = "name another directory, or replace it with `overwrite`$"
    with refuses("rounds", f"for 10 rounds, on which the training of fedproc depends; {way}"):
        run_directory.check_directory(tmp_path, planned.with_settings(rounds=20), overwrite=False)
    run_directory.check_directory(tmp_path, planned, overwrite=False)


def test_only_methods_with_a_schedule_know_the_number_of_rounds():
    for name, expected in (("fedproc", 10), ("fedavg", None)):
        config = ExperimentConfig.from_settings(algorithm=name, rounds=10)
        assert planning.planned_spec(config).task.num_rounds == expected


def test_digests_do_not_depend_on_rounds():
    longer, other = CONFIG.with_settings(rounds=9), CONFIG.with_settings(local_epochs=9)
    digests = [manifests.settings_digest(c.to_settings()) for c in (CONFIG, longer, other)]
    assert digests[0] == digests[1] != digests[2]


def test_digests_do_not_depend_on_limits_of_what_is_read():
    """Earlier versions counted them, so they count with their defaults."""
    config = ExperimentConfig.from_settings(dataset="cifar10", data_dir="data")
    digests = [
        manifests.settings_digest(config.with_settings(**limits).to_settings())
        for limits in ({}, {"max_json_bytes": 10**9}, {"max_json_depth": 30}, {"data_dir": "x"})
    ]
    assert len(set(digests)) == 1
    flat = config.to_settings()
    assert (flat["max_json_bytes"], flat["max_json_depth"]) == (250_000_000, 20)
    without = {name: value for name, value in flat.items() if not name.startswith("max_json")}
    assert manifests.settings_digest(without) not in digests


def test_early_stopping_decides_as_in_the_longer_run(options, tmp_path):
    settings = {"validation_fraction": 0.3, "early_stopping_patience": 1, "personal_eval_every": 0}
    longer = CONFIG.with_settings(**settings, rounds=7)
    run_experiment(longer, tmp_path / "whole", options)
    stopped = len(History.read(tmp_path / "whole" / "metrics.csv"))
    assert stopped < 7
    for rounds in (2, stopped, 6, 7):
        run_experiment(longer.with_settings(rounds=rounds), tmp_path / "run", options)
    assert_same_results(tmp_path / "run", tmp_path / "whole")

"""`--baselines`: the methods that are not federated, beside those of a comparison."""

import pytest

from tff_pcdd import methods


def planned(call_here, tmp_path, *flags, program="compare"):
    """The first word of each line of a dry run, after a point's settings."""
    status, out, err = call_here(program, "--dry_run", *flags, f"--output_dir={tmp_path / 'out'}")
    assert status == 0, err
    runs = [line.partition(" seed 0: ")[0] for line in out.splitlines() if " seed 0: " in line]
    return [run.rpartition(": ")[2] for run in runs]


def test_they_are_added_once(call_here, tmp_path):
    flags = ("--algorithms=fedavg,local", "--baselines")
    assert planned(call_here, tmp_path, *flags) == ["fedavg", "local", "central"]
    assert planned(call_here, tmp_path, "--algorithms=fedavg,local") == ["fedavg", "local"]


def test_all_means_all_federated_methods(call_here, tmp_path):
    federated = sorted(set(methods.names()) - {"local", "central"})
    assert planned(call_here, tmp_path, "--algorithms=all") == federated
    with_baselines = planned(call_here, tmp_path, "--algorithms=all", "--baselines")
    assert with_baselines == [*federated, "central", "local"]


def test_a_sweep_tunes_them_like_the_others(call_here, tmp_path):
    flags = ("--algorithms=fedavg", "--validation_fraction=0.2", "--aggregator=robust")
    flags += ("--grid=client_learning_rate=0.05,0.1",)
    tuned = planned(call_here, tmp_path, *flags, "--baselines", program="sweep")
    assert tuned == ["fedavg"] * 2 + ["central"] * 2 + ["local"] * 2
    assert planned(call_here, tmp_path, *flags, program="sweep") == ["fedavg"] * 2


@pytest.mark.parametrize("aggregator", ["robust", "secure"])
def test_they_have_no_aggregator(aggregator, call_here, tmp_path):
    """They have nothing to aggregate, and do not prevent the comparison."""
    flags = ("--algorithms=fedavg", f"--aggregator={aggregator}", "--noaggregator_zeroing")
    assert len(planned(call_here, tmp_path, *flags, "--baselines")) == 3


def test_they_have_no_server_optimizer(call_here, tmp_path):
    flags = ("--algorithms=fedavg", "--server_optimizer=fedadam", "--server_tau=0.01")
    assert len(planned(call_here, tmp_path, *flags, "--baselines")) == 3


def test_new_clients_refuse_local_and_say_what_has_added_it(call_here, tmp_path):
    """Nothing is said of --baselines if local is typed, nor of what is wrong with all methods."""
    untrained = "shares nothing: the model of a new client would be untrained"
    alone = f"--new_clients=2: cannot be used with local, which {untrained}"
    sweep = ("sweep", "--validation_fraction=0.2", "--grid=client_learning_rate=0.05,0.1")
    for program, *flags in (("compare",), sweep):
        for given, reason in (
            ("fedavg", f"{alone}; leave out --baselines"),
            ("all", f"{alone}; leave out --baselines"),
            ("fedavg,local", alone),
        ):
            flags_of_run = ("--dry_run", f"--algorithms={given}", "--baselines", "--new_clients=2")
            flags_of_run += (*flags, f"--output_dir={tmp_path / 'out'}")
            status, _, err = call_here(program, *flags_of_run)
            assert (status, err.strip()) == (2, f"{program}: error: {reason}")
    flags = ("--algorithms=fedavg", "--baselines", "--partition=iid", "--num_clients=2")
    _, _, err = call_here("compare", *flags, "--new_clients=2", f"--output_dir={tmp_path / 'out'}")
    assert "cannot be used with fedavg, central (must be below 2, the number of clients, " in err
    assert err.count("leave out --baselines") == 1

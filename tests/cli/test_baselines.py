"""`--baselines`: the methods that are not federated, beside those of a comparison."""

import pytest

from tff_pcdd import methods


def planned(call_here, tmp_path, *flags):
    """The method and the rest of each line of a dry run."""
    status, out, err = call_here("compare", "--dry_run", *flags, f"--output_dir={tmp_path / 'out'}")
    assert status == 0, err
    return [line.split(" ", 1)[0] for line in out.splitlines() if " seed 0: " in line]


def test_they_are_added_once(call_here, tmp_path):
    flags = ("--algorithms=fedavg,local", "--baselines")
    assert planned(call_here, tmp_path, *flags) == ["fedavg", "local", "central"]
    assert planned(call_here, tmp_path, "--algorithms=fedavg,local") == ["fedavg", "local"]


def test_all_means_all_federated_methods(call_here, tmp_path):
    federated = sorted(set(methods.names()) - {"local", "central"})
    assert planned(call_here, tmp_path, "--algorithms=all") == federated
    with_baselines = planned(call_here, tmp_path, "--algorithms=all", "--baselines")
    assert with_baselines == [*federated, "central", "local"]


@pytest.mark.parametrize("aggregator", ["robust", "secure"])
def test_they_have_no_aggregator(aggregator, call_here, tmp_path):
    """They have nothing to aggregate, and do not prevent the comparison."""
    flags = ("--algorithms=fedavg", f"--aggregator={aggregator}", "--noaggregator_zeroing")
    assert len(planned(call_here, tmp_path, *flags, "--baselines")) == 3


def test_they_have_no_server_optimizer(call_here, tmp_path):
    flags = ("--algorithms=fedavg", "--server_optimizer=fedadam", "--server_tau=0.01")
    assert len(planned(call_here, tmp_path, *flags, "--baselines")) == 3

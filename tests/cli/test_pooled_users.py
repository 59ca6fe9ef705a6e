"""Data sets that come divided by user say so if the default partition pools the users."""

import pytest

from tff_pcdd.data import checks

EMNIST = "--dataset=tff_emnist"


@pytest.fixture
def dry_run(call_here, tmp_path):
    """The warnings of a dry run, as if it was the first of its process; data are missing here."""

    def dry_run(program, *flags):
        checks.warn_once.cache_clear()
        result = call_here(program, "--dry_run", f"--output_dir={tmp_path / 'out'}", *flags)
        status, out, err = result
        assert status == 0, err
        assert out
        warnings = [line for line in err.splitlines() if "warning" in line]
        return [line for line in warnings if "the data are not on this machine" not in line]

    return dry_run


@pytest.mark.parametrize(
    ("flags", "division"),
    [
        (("train", EMNIST), "P10C2"),
        (("train", EMNIST, "--num_clients=50", "--classes_per_client=4"), "P50C4"),
        (("compare", EMNIST, "--algorithms=fedavg,fedprox", "--seeds=0,1"), "P10C2"),
        (
            (
                *("sweep", EMNIST, "--grid=client_learning_rate=0.01,0.1"),
                "--validation_fraction=0.2",
            ),
            "P10C2",
        ),
    ],
    ids=["train", "clients", "compare", "sweep"],
)
def test_one_line_says_that_users_are_pooled(dry_run, flags, division):
    assert dry_run(*flags) == [
        f"{flags[0]}: warning: --dataset=tff_emnist: the samples of its users are pooled and "
        f"divided anew ({division}); --partition=natural keeps the users as clients"
    ]


@pytest.mark.parametrize(
    "flags",
    [
        ("train", EMNIST, "--partition=natural"),
        ("train", EMNIST, "--partition=class"),
        ("compare", EMNIST, "--algorithms=fedavg", "--partitions=class:2,iid"),
        ("train", "--dataset=digits"),
        ("train", "--dataset=folder", "--data_dir=/none"),
        ("train", "--dataset=table", "--data_dir=/none", "--site_column=none"),
    ],
    ids=["kept", "chosen", "several", "no users", "kept by default", "no sites"],
)
def test_nothing_is_said_if_users_are_kept_or_the_partition_is_named(dry_run, flags):
    assert dry_run(*flags) == []


def test_a_flagfile_may_name_the_partition(dry_run, tmp_path):
    flagfile = tmp_path / "mine.flags"
    flagfile.write_text("--dataset=tff_emnist\n--partition=dirichlet\n")
    assert dry_run("train", f"--flagfile={flagfile}") == []

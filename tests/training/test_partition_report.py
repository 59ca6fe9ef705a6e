"""Tables and picture of a partition."""

import csv

import numpy as np
import pytest

from tff_pcdd.options import OptionError
from tff_pcdd.training import ExperimentConfig, partition_report

CONFIG = ExperimentConfig(num_clients=5, classes_per_client=3)


@pytest.fixture(scope="module")
def federation():
    return CONFIG.data_config().build()


def test_files_say_who_holds_what(federation, tmp_path):
    report = partition_report.write(CONFIG, federation, tmp_path / "out")
    assert (tmp_path / "out" / "clients.png").stat().st_size > 1000
    assert (tmp_path / "out" / "partition.md").read_text() == report
    with open(tmp_path / "out" / "partition.csv", newline="") as file:
        header, *lines = csv.reader(file)
    assert header == ["client", *federation.class_names]
    assert [line[0] for line in lines] == list(federation.client_ids)
    counts = np.array([[int(cell) for cell in line[1:]] for line in lines])
    np.testing.assert_array_equal(counts, federation.class_counts())
    partition_report.write(CONFIG, federation, tmp_path / "out")


def test_summary(federation):
    counts = federation.class_counts()
    sizes = counts.sum(axis=1)
    report = partition_report.summarize("digits, P5C3", federation)
    assert report.startswith("# digits, P5C3\n")
    assert "5 clients, 10 classes, 1438 training and 359 test samples." in report
    assert f"| training samples | {sizes.min()} | {np.median(sizes):g} | {sizes.max()} |" in report
    assert "| classes | 3 | 3 | 3 |" in report
    for label in range(10):
        lacking = 100 * np.mean(counts[:, label] == 0)
        assert f"| {label} | {counts[:, label].sum()} | {lacking:.0f} % |" in report


def test_a_directory_of_others_is_refused(federation, tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(OptionError, match="is not empty and holds no partition"):
        partition_report.write(CONFIG, federation, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]

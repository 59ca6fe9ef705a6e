"""The table of a comparison, and what is refused before anything is computed."""

import pytest

from tff_pcdd.options import OptionError
from tff_pcdd.training import ExperimentConfig, comparison


def configs(algorithms=("fedavg", "fedgela"), seeds=(0, 1)):
    return [ExperimentConfig(algorithm=a, seed=s) for a in algorithms for s in seeds]


def test_table_is_mean_and_deviation_over_seeds():
    summaries = [
        {"algorithm": "fedavg", "ga_final": 10.0, "pa_final": 90.0, "seconds_per_round": 0.5},
        {"algorithm": "fedavg", "ga_final": 20.0, "pa_final": 90.0, "seconds_per_round": 0.7},
        {"algorithm": "fedgela", "ga_final": 33.33, "pa_final": None, "seconds_per_round": 0.25},
    ]
    head, rule, *body = comparison._table(summaries).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in (head, *body)]
    assert cells[0] == ["method", *comparison._TABLE.values(), "seeds"]
    table = [dict(zip(cells[0], line, strict=True)) for line in cells[1:]]
    assert table[0]["method"] == "fedavg"
    assert table[0]["GA"] == "15.0 ± 5.0"
    assert table[0]["PA after"] == "90.0 ± 0.0"
    assert table[0]["s/round"] == "0.600 ± 0.100"
    assert table[0]["seeds"] == "2"
    assert table[1]["GA"] == "33.3"
    assert table[1]["PA after"] == "–"
    assert table[1]["PA before"] == "–"
    assert {len(line) for line in (head, rule, *body)} == {len(head)}


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (configs(seeds=(0, 0)), "--algorithms, --seeds: name each method and each seed once"),
        (configs(algorithms=("fedavg", "fedavg")), "--algorithms, --seeds: name each"),
    ],
)
def test_repetitions_are_refused(chosen, message, tmp_path):
    with pytest.raises(OptionError, match=message):
        comparison.compare(chosen, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_directory_of_others_is_refused(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(OptionError, match=r"is not empty and holds no comparison"):
        comparison.compare(configs(), tmp_path)
    with pytest.raises(OptionError, match=r"thesis.tex is a file"):
        comparison.compare(configs(), tmp_path / "thesis.tex")


def test_the_last_folder_is_checked_before_the_first_run(tmp_path):
    (tmp_path / "fedavg").mkdir()
    (tmp_path / "fedgela" / "seed_1").mkdir(parents=True)
    (tmp_path / "fedgela" / "seed_1" / "thesis.tex").touch()
    with pytest.raises(OptionError, match=r"fedgela/seed_1: is not empty and holds no run"):
        comparison.compare(configs(), tmp_path)
    assert not any((tmp_path / "fedavg").iterdir())

"""Every flagfile builds its runs; test_presets.py checks the published settings.

All in this process: settings take milliseconds, and a backbone is built once for all files.
"""

import os
import re
from pathlib import Path

import pytest

from tests import support
from tests.cli.conftest import ROOT, parsed
from tff_pcdd import methods
from tff_pcdd.cli import compare, method_grids, sweep
from tff_pcdd.data import checks
from tff_pcdd.methods import head_calibration

FILES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "flags").rglob("*.flags"))
FRAGMENTS = [name for name in FILES if "/common/" in name]
SWEEPS = [name for name in FILES if name.startswith("flags/sweeps/")]
ABLATIONS = [name for name in FILES if name.startswith("flags/comparison/ablations/")]
COMPARISONS = [
    name
    for name in FILES
    if name.startswith("flags/comparison/") and name not in FRAGMENTS + ABLATIONS
]
RUNNABLE = [name for name in FILES if name not in FRAGMENTS + SWEEPS + COMPARISONS + ABLATIONS]
PUBLISHED = [name for name in RUNNABLE if re.match(r"flags/fed(gela|mr|loge)/", name)]

# A file of weights that does not come with the project; test_presets.py has the refusal.
WITHOUT_WEIGHTS = [name for name in RUNNABLE if "fed_isic2019" not in name]


@pytest.fixture
def parse(monkeypatch):
    """The flags of a flagfile, parsed as the program does in the repository's root."""
    monkeypatch.chdir(ROOT)

    def parse(name, *further):
        further = (f"--flagfile={name}", *further)
        flags = parsed(compare, *further)
        needs_files = flags["dataset"] in flags.settings["data_dir"].applies_to
        return parsed(compare, *further, "--data_dir=/not/there") if needs_files else flags

    return parse


def included(name):
    """The files that a flagfile names."""
    return re.findall(r"^--flagfile=(.+)$", (ROOT / name).read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", RUNNABLE)
def test_every_file_has_settings_that_fit_together(name, parse, caplog):
    """And names the partition if the data set comes divided by user."""
    checks.warn_once.cache_clear()
    flags = parse(name)
    configs = [config for group in compare.read_configs(flags).values() for config in group]
    assert {config.algorithm for config in configs} == set(flags["algorithms"])
    assert not caplog.messages


@pytest.mark.integration
@pytest.mark.parametrize("name", WITHOUT_WEIGHTS)
def test_every_file_builds_its_runs(name, parse, tmp_path, capsys, monkeypatch):
    # Some compute two runs at a time, which a machine with one core refuses.
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(2))
    # Seeds change which samples clients get, and no setting.
    flags = parse(name, "--seeds=0", f"--output_dir={tmp_path / 'out'}", "--dry_run")
    compare.main(flags)
    lines = [line for line in capsys.readouterr().out.splitlines() if " seed " in line]
    partitions = flags["partitions"] or [""]
    runs = len(flags["algorithms"]) * len(flags["seeds"]) * len(partitions)
    assert len(lines) == len(set(lines)) == runs
    for line in lines:
        assert re.fullmatch(r"\w+ seed \d+: .+ \d+ rounds, \w+, [\d,]+ parameters .+", line)
    assert not os.listdir(tmp_path)


@pytest.mark.integration
@pytest.mark.parametrize("name", [name for name in SWEEPS if "fed_isic2019" not in name])
def test_every_sweep_builds_its_runs(name, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(ROOT)
    data = [] if "/small_" in name else ["--data_dir=/not/there"]
    output = (f"--output_dir={tmp_path / 'out'}", "--dry_run")
    flags = parsed(sweep, f"--flagfile={name}", *data, *output)
    sweep.main(flags)
    lines = [line for line in capsys.readouterr().out.splitlines() if " seed " in line]
    (values,) = sweep.read_grid(flags).values()
    assert len(lines) == len(set(lines)) == len(values) * len(flags["seeds"])
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("name", [name for name in SWEEPS if "/small_" not in name])
def test_a_sweep_says_what_to_expect(name):
    comment = "".join(re.findall(r"^#.*\n", (ROOT / name).read_text(), re.MULTILINE))
    for part in (r"\A# Fed(GELA|MR|LoGe), figure ", r"^# Published", r"^# Deviates", r"^# Needs: "):
        assert re.search(part, comment, re.MULTILINE), part


def base_of(name):
    """The flagfile of the federation that a row of an ablation was trained on."""
    (path,) = included(name)
    base = os.path.normpath(os.path.join(os.path.dirname(name), path))
    return base_of(base) if base in ABLATIONS else base


def read_comparison(name):
    on_digits = "/digits_" in (base_of(name) if name in ABLATIONS else name)
    data = [] if on_digits else ["--data_dir=/not/there"]
    return parsed(sweep, f"--flagfile={name}", *data)


# One for each of the fragments with grids that they include.
@pytest.mark.parametrize(
    "name",
    support.rare_but(
        [
            f"flags/comparison/{name}.flags"
            for name in ("cifar10_lt", "cifar10_p10c2", "digits_p10c2", "leaf_digits")
        ],
        COMPARISONS,
    ),
)
def test_the_methods_of_a_comparison_are_tuned_by_the_same_rule(name, monkeypatch):
    """Four learning rates, and three values of the coefficient of methods that have one."""
    monkeypatch.chdir(ROOT)
    flags = read_comparison(name)
    planned = method_grids.points(flags, method_grids.read(flags))
    assert set(planned) <= set(methods.names())
    assert len(planned) >= 9
    for method, points in planned.items():
        calibration = methods.create(method).head_calibration or "none"
        tuned = methods.get(method).tuning or head_calibration.registry.get(calibration).tuning
        assert len(points) == (12 if tuned else 4)
        for point in points:
            assert [config.seed for config in (*point.configs, *point.finals)] == [0, 1, 2, 3]
            shared = {(c.training.rounds, c.data, c.model) for c in (*point.configs, *point.finals)}
            assert {each[0] for each in shared} == {flags["rounds"]}
            assert {each[2].projection_dim for each in shared} == {84}


@pytest.mark.parametrize("name", ABLATIONS)
def test_ablations_are_tuned_like_the_comparison(name, monkeypatch):
    """Only settings of the method differ from those of the method's row on that federation."""
    monkeypatch.chdir(ROOT)
    flags, others = read_comparison(name), read_comparison(base_of(name))
    whole = method_grids.points(others, {"fedavg": method_grids.read(others)["fedavg"]})["fedavg"]
    planned = method_grids.points(flags, method_grids.read(flags))
    for points in planned.values():
        # A head that is trained has no scale, and FedAvg no coefficient.
        fewer = {"fedgela_local": 4, "fashion_p10c2_local": 4, "fashion_lt_gafr": 4}
        assert len(points) == fewer.get(Path(name).stem, 12)
        for point in points:
            rate = {"client_learning_rate": point.settings["client_learning_rate"]}
            (other,) = [one for one in whole if one.settings == rate]
            for own, of_other in ((point.configs, other.configs), (point.finals, other.finals)):
                assert [(c.seed, c.training, c.data, c.model) for c in own] == [
                    (c.seed, c.training, c.data, c.model) for c in of_other
                ]
    assert [flags[key] for key in ("criterion", "rungs", "reduction")] == [
        others[key] for key in ("criterion", "rungs", "reduction")
    ]


def test_the_comparisons_are_those_of_the_page():
    names = [name.removeprefix("flags/comparison/").removesuffix(".flags") for name in COMPARISONS]
    assert names == [
        "cifar10_lt",
        "cifar10_p10c2",
        "cifar10_p50c2",
        "digits_p10c2",
        "digits_p5c2",
        "fashion_dir0.1",
        "fashion_lt",
        "fashion_lt_p10c2",
        "fashion_p10c2",
        "leaf_digits",
    ]


def test_fragments_are_used():
    assert FRAGMENTS
    used = {
        os.path.normpath(path)
        for name in FILES
        for fragment in included(name)
        for path in (fragment, os.path.join(os.path.dirname(name), fragment))
    }
    assert set(FRAGMENTS) <= used


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_tables_file_says_what_to_expect(name):
    comment = "".join(re.findall(r"^#.*\n", (ROOT / name).read_text(), re.MULTILINE))
    for part in (r"\A# Fed(GELA|MR|LoGe), ", r"^# Published", r"^# (Deviates|γ)", r"^# Needs: "):
        assert re.search(part, comment, re.MULTILINE), part

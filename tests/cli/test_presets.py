"""Flagfiles have the settings of presets.csv, and comments and page have the published figures.

`presets.csv` is written from the papers, not from the flagfiles; its column `source` names the
sections. An empty cell says nothing, except that a data set without such a setting has none.
"""

import csv
import importlib
import pathlib
import re

import pytest

from tests.cli.conftest import ROOT, parsed
from tests.markdown_tables import table_rows
from tff_pcdd.cli import compare, experiments, sweep

FLAGS = ROOT / "flags"
HERE = pathlib.Path(__file__).resolve().parent

with open(HERE / "presets.csv", newline="", encoding="utf-8") as _file:
    PRESETS = {row["flagfile"]: row for row in csv.DictReader(_file)}

RUNNABLE = sorted(
    path
    for path in FLAGS.rglob("*.flags")
    if path.parent.name not in ("common", "comparison", "ablations")
)
NAMES = [str(path.relative_to(FLAGS)).removesuffix(".flags") for path in RUNNABLE]

# Columns that are not settings with the same name.
_OTHERS = ("flagfile", "source", "algorithms", "partitions", "options")


@pytest.fixture
def generate(monkeypatch):
    """The program that writes the figures."""
    monkeypatch.syspath_prepend(FLAGS)
    return importlib.import_module("generate")


def _read(name):
    """The flags of a file and its configurations with the first seed, by partition."""
    flags = _parse(name)
    if flags["dataset"] != "digits":
        flags = _parse(name, "--data_dir=/not/there")
    if _is_sweep(name):
        first = {flag: next(iter(values)) for flag, values in sweep.read_grid(flags).items()}
        config = experiments.read_config(
            flags, seed=0, **{flag: flags.parse_value(flag, text) for flag, text in first.items()}
        )
        return flags, {"": [config]}
    configs = {
        folder: [
            experiments.read_config(flags, algorithm, seed=0, **settings)
            for algorithm in compare.read_algorithms(flags)
        ]
        for folder, settings in compare.read_partitions(flags).items()
    }
    return flags, configs


def _is_sweep(name):
    return name.startswith("sweeps/")


def _parse(name, *further):
    program = sweep if _is_sweep(name) else compare
    return parsed(program, f"--flagfile=flags/{name}.flags", *further)


def _value(text):
    """A cell as the value of a setting."""
    if text in ("true", "false"):
        return text == "true"
    if text == "null":
        return None
    try:
        return float(text)
    except ValueError:
        return text


def _partition(settings):
    """The partition in the notation of presets.csv."""
    if settings["partition"] == "natural":
        return f"natural@{settings['max_clients'] or 'all'}"
    option = {"class": "classes_per_client", "dirichlet": "concentration"}[settings["partition"]]
    return f"{settings['partition']}:{settings[option]:g}@{settings['num_clients']}"


def _expected(row, algorithm, names):
    """The settings that a row of presets.csv demands of a method's configuration."""
    cells = {name: text for name, text in row.items() if name not in _OTHERS and text}
    for option in row["options"].split():
        name, _, text = option.partition("=")
        owner = name.partition("_")[0]
        if name == "grid":
            continue
        # A method aided by prototypes has the options of its base; no other has the last one.
        if name == "prototypes_mu2" and not algorithm.endswith("_prototypes"):
            continue
        # `local` is a method, and local_test an option of partitions.
        is_own = owner == algorithm.partition("_")[0] or owner not in names
        if is_own or name == "local_test":
            cells[name] = text
    return {name: _value(text) for name, text in cells.items()}


def test_every_flagfile_has_a_row():
    assert sorted(PRESETS) == sorted(NAMES)
    assert all(row["source"] for row in PRESETS.values())


@pytest.mark.parametrize("name", NAMES)
def test_settings_are_those_of_the_table(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    row, (flags, configs) = PRESETS[name], _read(name)
    algorithms = [flags["algorithm"]] if _is_sweep(name) else flags["algorithms"]
    assert ",".join(algorithms) == row["algorithms"]
    grid = [text.replace("=", ":") for text in flags["grid"]] if _is_sweep(name) else []
    assert grid == re.findall(r"\bgrid=(\S+)", row["options"])
    partitions = []
    for group in configs.values():
        partitions.append({_partition(config.to_settings()) for config in group})
        for config in group:
            settings = config.to_settings()
            expected = _expected(row, config.algorithm, compare.methods.names())
            assert {key: settings[key] for key in expected} == expected, config.algorithm
            for optional in ("imbalance_factor", "augmentation", "input_normalization"):
                if not row[optional]:
                    assert settings.get(optional) is None, optional
    described = [" ".join(partition) for partition in partitions]
    assert [_canonical(text) for text in row["partitions"].split()] == described


def _canonical(text):
    """`dirichlet:100000@10` as `_partition` writes it, `dirichlet:1e+05@10`."""
    number = re.search(r":([\d.]+)", text)
    return text if number is None else text.replace(number[1], f"{float(number[1]):g}")


def test_published_seeds():
    """FedGELA has three seeds (appendix C.4); the other papers do not state theirs."""
    for name in NAMES:
        if name.startswith(("fedgela/", "fedmr/", "fedloge/", "sweeps/")):
            assert _read_seeds(name) == [0, 1, 2]


def _read_seeds(name):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        return experiments.read_seeds(_parse(name))


def test_generating_changes_nothing(generate):
    stale = [path.name for path, text in generate.outputs().items() if path.read_text() != text]
    assert not stale, "run `python flags/generate.py`"


def _published(table):
    """The figures of a table as they are shown, each with its method and metric."""
    with open(FLAGS / "published" / f"{table}.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    shown = []
    for row in rows:
        value = row["value"]
        # FedLoGe prints fractions of 1.
        if (
            re.fullmatch(r"0\.\d+", value)
            and table.startswith("fedloge")
            and "norm" not in (row["metric"] or "")
        ):
            value = f"{float(value) * 100:.{len(value) - 4}f}"
        shown.append((row["method"], {"-": "–"}.get(value, value)))
    return shown


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith(("fed", "reproduction/"))])
def test_comments_have_figures_of_the_csv_only(name):
    text = (FLAGS / f"{name}.flags").read_text(encoding="utf-8")
    blocks = re.findall(
        r"^# \[published \|([^\n]*)\]\n(.*?)^# \[end of published\]\n", text, re.M | re.S
    )
    for fields, body in blocks:
        table = fields.split("|")[0].strip()
        figures = _published(table)
        body = " ".join(line.lstrip("# ") for line in body.splitlines())
        found = 0
        for method in {method for method, _ in figures}:
            # A method is followed by its figures, up to a comma, a semicolon or the end.
            pattern = rf"(?:^|[:,;] ){re.escape(method)} ([–\d][^,;]*?)(?=[,;]|\.$)"
            for cell in re.findall(pattern, body):
                for figure in cell.split(" / "):
                    found += 1
                    assert (method, figure.partition(" ± ")[0]) in figures, (method, figure)
        assert found, fields
    outside = re.sub(r"^# \[published.*?^# \[end of published\]\n", "", text, flags=re.M | re.S)
    comments = "".join(re.findall(r"^#.*\n", outside, re.M))
    # Figures have two or more decimals; the numbers of a comment have fewer.
    assert not re.findall(r"\d+\.\d{2,}(?! million)", comments)
    assert "not available" not in comments or not blocks or "archive" in comments


def test_every_table_is_on_the_page():
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    for path in (FLAGS / "published").glob("*.csv"):
        assert f"<!-- published | {path.stem} |" in page
        assert f"| {path.stem} |" in (FLAGS / "published" / "README.md").read_text("utf-8")


def test_tables_of_what_was_measured_have_the_figures_of_the_comparisons():
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^<!-- measured \|(.*?)-->\n(.*?)^<!-- end", page, re.M | re.S)
    columns = {
        "ga_final": "GA",
        "ga_second_half": "GA, 2nd half",
        "pa_before_final": "PA before",
        "pa_before_masked_final": "PA before, own classes",
        "pa_final": "PA after",
    }
    names = [fields.strip() for fields, _ in blocks]
    assert [f"reproduction/{name}" for name in sorted(names)] == [
        name for name in NAMES if name.startswith("reproduction/")
    ]
    for name, (_, body) in zip(names, blocks, strict=True):
        with open(ROOT / "docs/reproduction" / name / "comparison.csv", newline="") as file:
            runs = list(csv.DictReader(file))
        heading, *rows = table_rows(body)
        assert heading[1:6] == list(columns.values())
        for row, run in zip(rows, runs, strict=True):
            assert row[0].lower() == run["algorithm"]
            assert row[1:6] == [f"{float(run[column]):.1f}" for column in columns]
        flagfile = (FLAGS / "reproduction" / f"{name}.flags").read_text(encoding="utf-8")
        figures = _published(re.search(r"\[published \| (\w+)", flagfile)[1])
        for row in rows:
            assert {(row[0], figure) for figure in row[6].split(" / ")} <= {*figures}


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "changes", "setting", "reason"),
    [
        # No weights for ImageNet come with the project.
        ("fedgela/real_fed_isic2019", [], "pretrained_weights", "is not a readable file"),
        ("fedgela/table4_fed_isic2019", [], "pretrained_weights", "is not a readable file"),
        # 84 features are too few for a frame of 100 classes, or of 1,203.
        (
            "fedloge/table3_ssec",
            ["--model=simple_cnn"],
            "projection_dim",
            "fedloge needs at least 100 features for 100 classes",
        ),
        (
            "fedloge/table2_inaturalist",
            ["--model=simple_cnn", "--algorithms=fedloge"],
            "projection_dim",
            "fedloge needs at least 1203 features for 1203 classes",
        ),
    ],
)
def test_dry_run_says_what_cannot_run(
    name, changes, setting, reason, monkeypatch, tmp_path, capsys
):
    monkeypatch.chdir(ROOT)
    out = tmp_path / "out"
    flags = [f"--flagfile=flags/{name}.flags", "--data_dir=/not/there", f"--output_dir={out}"]
    with pytest.raises(SystemExit) as stopped:
        compare.run(["compare", *flags, *changes, "--dry_run"])
    assert stopped.value.code == 2
    # TensorFlow may report deprecations before.
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"compare: error: --{setting}=")
    assert reason in line
    assert not out.exists()

"""Data as people bring them, and what is expected: the cases of the tables in docs/quality.md.

A case is given in several forms, such as a csv file, a parquet file and a data frame. What has to
be seen is computed with pandas and NumPy.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import json
import logging
import pathlib
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tests.data.test_own_folder import noise, write
from tests.data.test_own_spreadsheets import write_parquet
from tff_pcdd import data
from tff_pcdd.data import checks
from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.report import partition

N = 24
TABLE = ("csv", "parquet", "Excel", "Python")
ARRAYS = ("npz", "Python")
FOLDER = ("folder",)

Look = Callable[[data.Federation], str]


@dataclasses.dataclass(frozen=True)
class Case:
    """Something that a person brings.

    Attributes:
        what: what it is, in words.
        expected: "refused", or what `look` says; with "; warned" if warnings are expected.
        forms: in which forms it is given.
        load: makes the federation in a form, with files in an empty folder.
        look: what is seen, in words.
        names: what a refusal or the warnings have to name, beside the file.
    """

    what: str
    expected: str
    forms: Sequence[str]
    load: Callable[[str, pathlib.Path], data.Federation]
    look: Look
    names: tuple[str, ...] = ()

    def outcome(self, form: str, folder: pathlib.Path) -> str:
        """What comes out in a form: in words, with the reason or the warnings."""
        checks.warn_once.cache_clear()
        with _warnings() as said:
            try:
                seen = self.look(self.load(form, folder))
            except (DataError, SettingError) as error:
                text = str(error)
                assert "\n" not in text, text
                assert all(name in text for name in self.names), (self.names, text)
                return f"refused: {_short(text, folder)}"
        if not said:
            return seen
        warnings = "; ".join(said)
        assert all(name in warnings for name in self.names), (self.names, said)
        return f"{seen}; warned: {_short(warnings, folder)}"


@contextlib.contextmanager
def _warnings() -> Iterator[list[str]]:
    texts: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: texts.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("tff_pcdd").addHandler(handler)
    try:
        yield texts
    finally:
        logging.getLogger("tff_pcdd").removeHandler(handler)


def _short(text: str, folder: pathlib.Path) -> str:
    text = text.replace(f"dataset npz: data_dir={folder}/", "").replace(f"{folder}/", "")
    return text.replace(f"{folder}: ", "").replace(str(folder), "the folder")


# What is seen.


def clients(made: data.Federation) -> str:
    return f"sites {', '.join(made.client_ids)}"


def classes(made: data.Federation) -> str:
    return f"classes {', '.join(made.class_names)}"


def samples(made: data.Federation) -> str:
    return f"{len(made.train) + len(made.test)} samples"


def inputs(made: data.Federation) -> str:
    names = data.encoding.features(made.input_spec.columns or ())
    return f"inputs {', '.join(names)}"


def parts(made: data.Federation) -> str:
    held = sum(len(client.validation) for client in made.clients)
    return f"{len(made.train) - held} training, {held} validation, {len(made.test)} test samples"


def _rows(made: data.Federation, part: str, first: int | None = None) -> list[int]:
    """The rows of the samples of a part; the first one of all is row 0, or has this number."""
    names = [*made.train.ids, *made.test.ids]
    start = min(int(name.split()[1]) for name in names) if first is None else first
    return [int(name.split()[1]) - start for name in getattr(made, part).ids]


def like(values: Any, first: int | None = None) -> Look:
    """Whether the inputs are these values, in the order of the rows, in float32."""

    def look(made: data.Federation) -> str:
        wanted = np.asarray(values, np.float64)
        for part in ("train", "test"):
            for row, x in zip(_rows(made, part, first), getattr(made, part).x, strict=True):
                if not np.array_equal(x.astype(np.float32), wanted[row].astype(np.float32)):
                    return f"{x} instead of {wanted[row]}"
        return "the numbers of the table"

    return look


# How it is given.


def visits(**columns: Any) -> pd.DataFrame:
    """A table of numbers, two classes and three sites."""
    draw = np.random.default_rng(3)
    made = pd.DataFrame(
        {
            "pulse": draw.normal(70, 9, N).round(1),
            "hours": draw.integers(1, 900, N),
            "label": np.array(["benign", "malign"])[draw.permutation(N) % 2],
            "site": ["Jena", "Ulm", "Zug"] * (N // 3),
        }
    )
    for name, values in columns.items():
        made[name] = values
    return made


def of_table(
    what: str,
    expected: str,
    table: pd.DataFrame,
    look: Look,
    *names: str,
    forms: Sequence[str] = TABLE,
    features: str = "pulse,hours",
    **options: Any,
) -> Case:
    """A case of a table, in all forms of tables."""

    def load(form, folder):
        if form == "Python":
            return data.from_dataframe(table, features=features, name="frame", **options)
        path = folder / {"csv": "a.csv", "parquet": "a.parquet", "Excel": "a.xlsx"}[form]
        if form == "csv":
            table.to_csv(path, index=False)
        elif form == "parquet":
            mixed = {name: str for name in table if table[name].map(type).nunique() > 1}
            plain = {
                name: table[name].map(lambda value: value if value is None else str(value))
                for name in mixed
            }
            table.assign(**plain).to_parquet(path, index=False)
        else:
            table.to_excel(path, index=False)
        values = {"data_dir": str(path), "feature_columns": features, **options}
        return data.load_federation("table", "natural", **values)

    return Case(what, expected, forms, load, look, names)


def of_arrays(
    what: str,
    expected: str,
    x: np.ndarray,
    y: Any,
    look: Look,
    *names: str,
    sites: Any = None,
    forms: Sequence[str] = ARRAYS,
    **options: Any,
) -> Case:
    """A case of arrays, in a file and in Python; `groups` is an array of the file, too."""
    sites = ["Jena", "Ulm"] * (len(x) // 2) if sites is None else sites
    arrays = {
        key: options.pop(name)
        for key, name in (("class_names", "class_names"), ("group", "groups"))
        if name in options
    }

    def load(form, folder):
        if form == "Python":
            given = {"groups" if key == "group" else key: value for key, value in arrays.items()}
            return data.from_arrays(x, y, sites, name="arrays", **given, **options)
        path = folder / "a.npz"
        np.savez(path, x=x, y=np.array(y), site=np.array(sites), **arrays)
        return data.load_federation("npz", "natural", data_dir=str(path), **options)

    return Case(what, expected, forms, load, look, names)


def of_folder(
    what: str, expected: str, folders: dict[str, int], look: Look, *names: str, **options: Any
) -> Case:
    """A case of folders with so many images."""

    def load(form, folder):
        number = 0
        for path, count in folders.items():
            for _ in range(count):
                write(folder / path / f"{number:03d}.png", noise(number, 4, 4, 3))
                number += 1
        return data.from_folder(folder, **options)

    return Case(what, expected, FOLDER, load, look, names)


def of_text(
    what: str, expected: str, file: str, text: str, look: Look, *names: str, **options: Any
) -> Case:
    """A case of a csv file that a spreadsheet has written."""

    def load(form, folder):
        content = text.encode()
        (folder / file).write_bytes(gzip.compress(content) if file.endswith("gz") else content)
        values = {"data_dir": str(folder / file), "feature_columns": "pulse,hours", **options}
        return data.load_federation("table", "natural", **values)

    return Case(what, expected, (file[1:],), load, look, names)


_IMAGES = np.random.default_rng(4).integers(0, 256, (N, 6, 5), np.uint8)
_TWO = np.array(["benign", "malign"] * (N // 2))


# D. Names.

_FOUR = dict.fromkeys(("Jena/Benign", "Jena/malign", "Ulm/benign", "Ulm/Malign"), 4)
_CASES = np.where(
    np.arange(N) < N // 2,
    np.tile(["Benign", "malign"], N // 2),
    np.tile(["benign", "Malign"], N // 2),
)
_IN_TWO = np.repeat(["Jena", "Ulm"], N // 2)
_IDS = [70071992547409931, 70071992547409932, 5] * (N // 3)
_SPELLED = ["stage two", "stage_two", "stage one"] * (N // 3)
_COMPOSED = [unicodedata.normalize(form, "Ménière") for form in ("NFC", "NFD")]

_ALIKE = "classes Benign, Malign, benign, malign; warned"
NAMES = (
    of_folder(
        "classes that differ in case, at two sites", _ALIKE, _FOUR, classes, "'Benign' and 'benign'"
    ),
    of_table(
        "the same", _ALIKE, visits(label=_CASES, site=_IN_TWO), classes, "'Benign' and 'benign'"
    ),
    of_arrays("the same", _ALIKE, _IMAGES, _CASES, classes, "'Malign' and 'malign'", sites=_IN_TWO),
    of_table(
        "the same, with join_names",
        "classes Benign, malign; warned",
        visits(label=_CASES, site=_IN_TWO),
        classes,
        "names are joined under the most frequent one: classes",
        join_names=True,
    ),
    of_folder(
        "the same, with join_names",
        "classes Benign, malign; warned",
        _FOUR,
        classes,
        "'Malign' to 'malign'",
        join_names=True,
    ),
    of_table(
        "classes that differ in a blank",
        "classes stage one, stage two, stage_two; warned",
        visits(label=_SPELLED),
        classes,
        "'stage two' and 'stage_two'",
    ),
    of_table(
        "sites that differ in leading zeros",
        "sites ward 07, ward 7; warned",
        visits(site=["ward 07", "ward 7"] * (N // 2)),
        clients,
        "'ward 07' and 'ward 7'",
    ),
    of_table(
        "a class in two forms of Unicode",
        "classes Ménière, none",
        visits(label=[*_COMPOSED, "none"] * (N // 3)),
        classes,
    ),
    of_table(
        "sites of 17 digits",
        "sites 5, 70071992547409931, 70071992547409932",
        visits(site=_IDS),
        clients,
        forms=("csv", "parquet", "Python"),
    ),
    of_table(
        "the same beside 5.0",
        "sites 5, 70071992547409931, 70071992547409932",
        visits(site=pd.Series([*_IDS[:2], 5.0] * (N // 3), dtype=object)),
        clients,
        forms=("csv", "parquet", "Python"),
    ),
    of_arrays(
        "the same in arrays",
        "sites 5, 70071992547409931, 70071992547409932",
        _IMAGES,
        _TWO,
        clients,
        sites=np.array(_IDS),
    ),
    of_table(
        "17 digits in cells of Excel, which keeps fewer",
        "1 sites; warned",
        visits(site=_IDS[:1] * N),
        lambda made: f"{made.num_clients} sites",
        "row 2",
        "the site '70071992547409928",
        "first digits",
        forms=("Excel",),
    ),
    of_arrays(
        "names of classes in the order of labels, one unused",
        "labels 0, 1: zoster, acne; classes zoster, acne, none; warned",
        _IMAGES,
        np.arange(N) % 2,
        lambda made: (
            f"labels {', '.join(map(str, np.unique(made.train.y)))}: "
            f"{', '.join(made.class_names[label] for label in np.unique(made.train.y))}; "
            f"{classes(made)}"
        ),
        "class none has no training samples",
        class_names=np.array(["zoster", "acne", "none"]),
    ),
)

# E. Missing values.


def _with(values: Sequence[Any], *others: Any) -> list[Any]:
    """The values, in which the ones from the fifth on are replaced."""
    return [*values[:4], *others, *values[4 + len(others) :]]


_LABELS, _SITES = visits()["label"].tolist(), visits()["site"].tolist()
_GAPS = visits(pulse=_with(visits()["pulse"].astype(object).tolist(), None, "?"))
_PAINS = visits(pain=["dull", "none", "sharp"] * (N // 3))


def _median(made: data.Federation) -> str:
    """The value in the places of missing ones, which has to be the median of the training part."""
    train, test = _rows(made, "train"), _rows(made, "test")
    known = pd.to_numeric(_GAPS["pulse"], errors="coerce")
    wanted = np.float32(known.iloc[train].median())
    pulses = dict(zip([*train, *test], [*made.train.x[:, 0], *made.test.x[:, 0]], strict=True))
    found = {float(pulses[index]) for index in (4, 5)}
    return "the median of the training samples" if found == {float(wanted)} else f"{found}"


MISSING = (
    *(
        of_table(
            f"a label {text}",
            "refused",
            visits(label=_with(_LABELS, text)),
            classes,
            "row ",
            "the label is missing",
            repr(text),
        )
        for text in ("#N/A", "NULL", "?", "n/a", "\\N")
    ),
    of_table(
        "a site NA",
        "refused",
        visits(site=_with(_SITES, "NA")),
        clients,
        "the site is missing",
        "'NA'",
    ),
    of_arrays(
        "a label None in arrays",
        "refused",
        _IMAGES,
        _with(_TWO.tolist(), "None"),
        classes,
        "row 4: the label is missing",
    ),
    of_table(
        "labels ? and NULL, with missing=drop",
        "22 samples; warned",
        visits(label=_with(_LABELS, "?", "NULL")),
        samples,
        "2 rows left out; missing: the label in 2",
        missing="drop",
    ),
    of_table(
        "a label NA, with missing=keep",
        "classes NA, benign, malign; warned",
        visits(label=_with(_LABELS, "NA", "NA")),
        classes,
        "class NA has no test samples",
        missing="keep",
    ),
    *(
        of_table(
            f"a label {text}, which may be a name",
            f"classes {', '.join(sorted(('benign', 'malign', text)))}; warned",
            visits(label=_with(_LABELS, text, text)),
            classes,
            f"the label {text!r} may say that it is missing",
            f"missing_markers={text}",
        )
        for text in ("--", "unknown")
    ),
    of_table(
        "a feature ?",
        "refused",
        visits(pulse=_with(visits()["pulse"].astype(object).tolist(), "?")),
        samples,
        "column 'pulse' is missing (it is '?'",
    ),
    of_table(
        "features missing, with impute=median",
        "the median of the training samples; warned",
        _GAPS,
        _median,
        "missing: column 'pulse' in 2",
        impute="median",
    ),
    of_table(
        "-7 for a missing feature, with missing_markers=-7",
        "refused",
        visits(hours=_with(visits()["hours"].tolist(), -7)),
        samples,
        "column 'hours' is missing (it is '-7'",
        missing_markers="-7",
        forms=("parquet", "Python"),
    ),
    of_table(
        "texts as a feature",
        "refused",
        _PAINS,
        inputs,
        "'dull' in column 'pain'",
        "categorical_columns can name a column of texts",
        features="pulse,pain",
    ),
    of_table(
        "the same, with categorical_columns",
        "inputs pulse, pain = dull, pain = none, pain = sharp",
        _PAINS,
        inputs,
        features="pulse,pain",
        categorical_columns="pain",
    ),
)

# F. Columns that must not be inputs.

_DIFFERENT = [1790000000.0 + 9 * k for k in range(N)]


def _seconds(made: data.Federation) -> str:
    different = len({float(x[0]) for part in (made.train, made.test) for x in part.x})
    return f"{different} different values"


COLUMNS = (
    of_table(
        "the index of pandas",
        "inputs pulse, hours; warned",
        visits().reset_index(names="Unnamed: 0"),
        inputs,
        "column Unnamed: 0 is left out: running numbers",
        features="all",
    ),
    of_table(
        "running numbers from 7001 on, in any order",
        "inputs pulse, hours; warned",
        visits(nr=np.random.default_rng(0).permutation(N) + 7001),
        inputs,
        "column nr is left out",
        features="all",
    ),
    of_table(
        "a constant column",
        "inputs pulse, hours; warned",
        visits(batch=3),
        inputs,
        "column batch is left out: constant",
        features="all",
    ),
    of_table(
        "a column from which the class follows",
        "inputs pulse, hours, biopsy; warned",
        visits(biopsy=np.where(visits()["label"] == "malign", 2.5, 0.5)),
        inputs,
        "follows from column 'biopsy' alone",
        features="all",
    ),
    of_table(
        f"{N} Unix seconds, 9 apart",
        f"{N} different values; warned",
        visits(seen=_DIFFERENT),
        _seconds,
        "column 'seen'",
        features="seen,pulse",
    ),
    of_arrays(
        "the same in arrays",
        "3 different values; warned",
        np.stack([_DIFFERENT, np.random.default_rng(0).normal(size=N)], axis=1),
        _TWO,
        _seconds,
        "feature 0",
        "subtract",
    ),
    of_table(
        "numbers of patients",
        "inputs pulse, hours; warned",
        visits(patientID=np.arange(N) // 2 * 7 + 1000),
        inputs,
        "column patientID is left out: ids by their names",
        features="all",
    ),
    of_table(
        "a column twice",
        "refused",
        visits(),
        inputs,
        "=pulse,hours,pulse: 'pulse' occurs twice",
        features="pulse,hours,pulse",
    ),
    of_table(
        "the label as a feature",
        "refused",
        visits(label=np.arange(N) % 2),
        inputs,
        "label is the label or the site, and would give away the answer",
        features="pulse,label",
    ),
)

# G. Parts.

_EIGHT = {"Training": 8, "Testing": 4}
_PATIENTS = [f"Q{number}" for number in np.arange(N) // 3]
_SPLIT = ["Training", "Validation", "TEST"] * (N // 3)


def _in_parts(names: Sequence[str]) -> dict[str, int]:
    return {
        f"{part}/{site}/{label}": 4
        for part in names
        for site in ("Jena", "Ulm")
        for label in ("benign", "malign")
    }


def _together(made: data.Federation) -> str:
    """In how many parts the rows of a patient are."""
    of = [{_PATIENTS[row] for row in _rows(made, part)} for part in ("train", "test")]
    return f"{len(set.intersection(*of))} patients in two parts"


_ONE_SITE = {"site": np.array(["Jena", "Ulm"])[np.arange(N) // 3 % 2]}
PARTS = (
    of_folder(
        "Training and Testing",
        "16 training, 0 validation, 16 test samples",
        _in_parts(["Training", "Testing"]),
        parts,
    ),
    of_folder(
        "TRAIN, Valid and test_set",
        "16 training, 16 validation, 16 test samples",
        _in_parts(["TRAIN", "Valid", "test_set"]),
        parts,
    ),
    of_folder(
        "train_data, val-data and Test data",
        "16 training, 16 validation, 16 test samples",
        _in_parts(["train_data", "val-data", "Test data"]),
        parts,
    ),
    of_folder(
        "parts without test images",
        "refused",
        _in_parts(["train", "val"]),
        parts,
        "holds the folders train, val",
    ),
    of_folder(
        "parts within sites",
        "refused",
        {f"Jena/{part}/{label}": 2 for part in ("train", "test") for label in ("x", "y")},
        parts,
        "is a folder in a class's folder",
    ),
    of_folder(
        "sites whose classes are parts",
        "refused",
        {f"{site}/{part}": 2 for part in ("training", "testing") for site in ("Jena", "Ulm")},
        parts,
        "the classes are testing, training, which are parts",
    ),
    of_table(
        "a column split, in any spelling",
        "8 training, 8 validation, 8 test samples; warned",
        visits(split=_SPLIT),
        parts,
        "have no training samples",
    ),
    of_table(
        "a column of parts under another name",
        "24 samples; warned",
        visits(Set=np.array(["Training", "TEST"])[np.arange(N) % 2]),
        samples,
        "column 'Set' says train and test, but is not used; split_column=Set uses it",
    ),
    of_table(
        "another word in split",
        "refused",
        visits(split=_with(_SPLIT, "holdout")),
        parts,
        "split 'holdout' is not train, val or test",
    ),
    of_table(
        "the same, with split_column=none",
        "24 samples",
        visits(split=_with(_SPLIT, "holdout")),
        samples,
        split_column="none",
    ),
    of_table(
        "patients with three rows each",
        "3 patients in two parts; warned",
        visits(patient_id=_PATIENTS, **_ONE_SITE),
        _together,
        "values of column 'patient_id' have samples in the training and the test part",
    ),
    of_table(
        "the same, with group_column",
        "0 patients in two parts",
        visits(patient_id=_PATIENTS, **_ONE_SITE),
        _together,
        group_column="patient_id",
    ),
    of_table(
        "a patient at two sites, with group_column",
        "refused",
        visits(patient_id=_PATIENTS),
        _together,
        "the group 'Q0' has samples at the sites Jena and Ulm",
        group_column="patient_id",
    ),
    of_arrays(
        "a patient at two sites, in arrays",
        "refused",
        _IMAGES,
        _TWO,
        samples,
        "the group 'Q0' has samples at the sites",
        groups=np.array(_PATIENTS),
    ),
    of_table(
        "a site of 2 samples, with min_site_samples=5",
        "sites Jena, Ulm, Zug; warned",
        visits(site=_with(_SITES, "Gera", "Gera")),
        clients,
        "site Gera left out, with fewer than 5 samples each, 2 together",
        min_site_samples=5,
    ),
    of_table(
        "two sites of 3 samples, with small_sites=join",
        "sites Jena, Ulm, Zug, small sites; warned",
        visits(site=_with(_SITES, *["Gera", "Suhl"] * 3)),
        clients,
        "sites Gera, Suhl, with fewer than 5 samples each, 6 together, are joined",
        min_site_samples=5,
        small_sites="join",
    ),
)

# H. Arrays and the layouts of others.


def _pixels(wanted: np.ndarray) -> Look:
    def look(made: data.Federation) -> str:
        for part in (made.train, made.test):
            for name, x in zip(part.ids, part.x, strict=True):
                if not np.array_equal(x.reshape(wanted.shape[1:]), wanted[int(name.split()[1])]):
                    return "other pixels"
        return "the pixels of the arrays"

    return look


def _first(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 256, (N, *shape), np.uint8)


def _of_clients(make: Callable[[pathlib.Path], None], look: Look, what: str, expected: str, *names):
    def load(form, folder):
        make(folder)
        return data.load_federation("npz", "natural", data_dir=str(folder))

    return Case(what, expected, ("folder of npz",), load, look, names)


def _pfllib(folder: pathlib.Path, content: Any = None) -> None:
    for part in ("train", "test"):
        (folder / part).mkdir()
        for client in range(2):
            values = {"x": _first((1, 6, 5))[:8].astype(np.float32), "y": np.arange(8) % 2}
            with open(folder / part / f"{client}.npz", "wb") as file:
                np.savez(file, data=values if content is None else content)


class _Evil:
    def __reduce__(self):
        return (print, ("executed",))


def _medmnist(form: str, folder: pathlib.Path) -> data.Federation:
    arrays = {}
    for part, number in (("train", 12), ("val", 6), ("test", 6)):
        arrays[f"{part}_images"] = _first((6, 5))[:number]
        arrays[f"{part}_labels"] = (np.arange(number) % 2)[:, None]
    np.savez(folder / "a.npz", **arrays)
    return data.load_federation("npz", "iid", 2, data_dir=str(folder / "a.npz"))


def _with_images(form: str, folder: pathlib.Path) -> data.Federation:
    """A parquet file as Hugging Face's datasets write it."""
    write_parquet(folder / "a.parquet", range(N), ["zoster", "acne"])
    options = {"data_dir": str(folder / "a.parquet"), "path_column": "image"}
    return data.load_federation("table", "natural", site_column="hospital", **options)


def _dictionaries(form: str, folder: pathlib.Path) -> data.Federation:
    import tensorflow as tf

    elements = {"image": _IMAGES[..., None], "label": np.arange(N) % 2, "site": _IN_TWO}
    return data.from_tf_dataset(tf.data.Dataset.from_tensor_slices(elements))


def _simulations(form: str, folder: pathlib.Path) -> data.Federation:
    import collections

    import tensorflow_federated as tff

    of = {
        site: collections.OrderedDict(
            pixels=_IMAGES[site == _IN_TWO][..., None], label=(np.arange(N) % 2)[site == _IN_TWO]
        )
        for site in ("Jena", "Ulm")
    }
    return data.from_tf_dataset(tff.simulation.datasets.TestClientData(of))


def _leaf(name: str, user: Callable[[int], dict]) -> Callable[[str, pathlib.Path], data.Federation]:
    def load(form, folder):
        for part in ("train", "test"):
            users = {f"u{k}": user(k) for k in range(2)}
            content = {
                "users": list(users),
                "num_samples": [len(own["y"]) for own in users.values()],
                "user_data": users,
            }
            path = folder / "data" / part / "all_data_0.json"
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps(content))
        (folder / "raw" / "img_align_celeba").mkdir(parents=True)
        for k in range(8):
            write(folder / "data" / "raw" / "img_align_celeba" / f"{k}.jpg", noise(k, 8, 8, 3))
        return data.load_federation(name, "natural", data_dir=str(folder / "data"))

    return load


def of_npz(what: str, expected: str, arrays: dict[str, np.ndarray], *names: str) -> Case:
    """A case of an .npz file."""

    def load(form, folder):
        np.savez(folder / "a.npz", **arrays)
        return data.load_federation("npz", "natural", data_dir=str(folder / "a.npz"))

    return Case(what, expected, ("npz",), load, samples, names)


ARRAYS_AND_LAYOUTS = (
    of_arrays(
        "images of 7 channels, channels first",
        "refused",
        _first((7, 48, 48)),
        _TWO,
        samples,
        "48 channels of 48×7 pixels; channels come last: np.moveaxis(x, 1, -1)",
    ),
    of_arrays(
        "the same, not square",
        "24 samples; warned",
        _first((7, 40, 48)),
        _TWO,
        samples,
        "48 channels of 40×7 pixels; if the second axis holds the channels",
    ),
    of_arrays(
        "images of 7 channels",
        "the pixels of the arrays",
        _first((9, 8, 7)),
        _TWO,
        _pixels(_first((9, 8, 7))),
    ),
    of_npz(
        "arrays under other names",
        "refused",
        {"images": _IMAGES, "labels": _TWO},
        "array 'x' is missing, there are images, labels; x, y and site are needed",
    ),
    of_npz(
        "further arrays",
        "24 samples; warned",
        {"x": _IMAGES, "y": _TWO, "site": _IN_TWO, "patient": np.arange(N)},
        "array patient not used",
    ),
    of_npz(
        "labels as Python objects",
        "refused",
        {"x": _IMAGES, "y": _TWO.astype(object), "site": _IN_TWO},
        "array 'y' holds Python objects; save texts as np.array(values, str)",
    ),
    Case(
        "MedMNIST's file",
        "12 training, 6 validation, 6 test samples; warned",
        ("npz",),
        _medmnist,
        parts,
        ("6 samples occur in",),
    ),
    _of_clients(
        _pfllib,
        lambda made: f"{clients(made)}, images of {made.input_spec.shape}",
        "PFLlib's files",
        "sites 0, 1, images of (6, 5, 1); warned",
        "8 samples occur at several sites",
    ),
    _of_clients(
        lambda folder: _pfllib(folder, np.array(_Evil(), object)),
        samples,
        "the same with a program",
        "refused",
        "0.npz",
        "builtins.print",
    ),
    Case(
        "Hugging Face's parquet with images",
        "classes zoster, acne; 24 samples",
        ("parquet",),
        _with_images,
        lambda made: f"{classes(made)}; {samples(made)}",
    ),
    Case(
        "dictionaries of TensorFlow Datasets",
        "the pixels of the arrays",
        ("Python",),
        _dictionaries,
        _pixels(_IMAGES),
    ),
    Case("TFF's client data", "sites Jena, Ulm", ("Python",), _simulations, clients),
    Case(
        "LEAF's synthetic data",
        "sites u0, u1",
        ("JSON",),
        _leaf("leaf_synthetic", lambda k: {"x": [[0.1 * k, 2.0] * 30] * 4, "y": [0, 1, 2, 1]}),
        clients,
    ),
    Case(
        "LEAF's CelebA",
        "sites u0, u1; warned",
        ("JSON",),
        _leaf("celeba", lambda k: {"x": [f"{4 * k + i}.jpg" for i in range(4)], "y": [0, 1, 0, 1]}),
        clients,
        ("8 samples occur in the training and the test part",),
    ),
    Case(
        "LEAF's Sent140",
        "sites u0, u1",
        ("JSON",),
        _leaf(
            "sent140",
            lambda k: {
                "x": [["1", "day", "NO_QUERY", "me", f"so good {i}", "t"] for i in range(2)],
                "y": [0, 1],
            },
        ),
        clients,
    ),
)

# I. Spreadsheets.


def _written(delimiter: str, decimal: str = ".", first: str = "") -> str:
    return first + visits().to_csv(index=False, sep=delimiter, decimal=decimal)


_NUMBERS = visits()[["pulse", "hours"]].to_numpy(float)
_SAME = "the numbers of the table"
_RENAMED = visits().rename(columns={"pulse": "pulse, at rest"})


def _listed_images(pattern: str | None, text: Callable[[int], str], **options: Any):
    """A table that names images in two folders."""

    def load(form, folder):
        for k in range(N):
            write(folder / f"part_{k % 2}" / f"IM_{k:04d}.png", noise(k, 4, 4, 3))
        rows = (f"{text(k)},{'xy'[k // 2 % 2]},{('Jena', 'Ulm')[2 * k // N]}" for k in range(N))
        lines = ["image_id,label,site", *rows]
        (folder / "a.csv").write_text("\n".join(lines))
        found = {"path_pattern": pattern} if pattern else {"path_column": "image_id"}
        return data.load_federation(
            "table", "natural", data_dir=str(folder / "a.csv"), **found, **options
        )

    return load


def _its_images(made: data.Federation) -> str:
    for part in (made.train, made.test):
        for name, x in zip(part.ids, part.x, strict=True):
            if not np.array_equal(x, noise(int(name.split()[1]) - 2, 4, 4, 3)):
                return "other images"
    return "the image of each row"


SPREADSHEETS = (
    of_text("a first line sep=;", _SAME, "a.csv", _written(";", ",", "sep=;\n"), like(_NUMBERS, 3)),
    of_text("semicolons and decimal commas", _SAME, "a.csv", _written(";", ","), like(_NUMBERS, 2)),
    of_text("tabs", _SAME, "a.tsv", _written("\t"), like(_NUMBERS, 2)),
    of_text("packed by gzip", _SAME, "a.csv.gz", _written(","), like(_NUMBERS, 2)),
    of_text(
        "a comma in a name, beside semicolons",
        _SAME,
        "a.csv",
        _RENAMED.to_csv(index=False, sep=";"),
        like(_NUMBERS, 2),
        feature_columns='"pulse, at rest",hours',
    ),
    of_text(
        "12.500 beside decimal commas",
        "refused",
        "a.csv",
        _written(";", ",").replace(f"\n{_NUMBERS[5, 0]}".replace(".", ","), "\n12.500", 1),
        samples,
        "column 'pulse'",
        "12.500",
    ),
    of_text(
        "other characters between cells",
        "refused",
        "a.csv",
        _written("|"),
        samples,
        "column 'label' is missing, there are pulse|hours|label|site",
        "add sep=| first",
    ),
    of_text(
        "a web page",
        "refused",
        "a.csv",
        "<!DOCTYPE html><html>Sign in</html>",
        samples,
        "is a web page or XML, not a text with a line for each sample",
    ),
    of_text(
        "a workbook of Excel under the name of a csv file",
        "refused",
        "a.csv",
        "PK\x03\x04",
        samples,
        "is an .xlsx file or another archive",
    ),
    of_text(
        "ids that a spreadsheet has shortened",
        "sites 2.71828E+15, Bern; warned",
        "a.csv",
        visits(site=["2.71828E+15", "Bern"] * (N // 2)).to_csv(index=False),
        clients,
        "row 2",
        "the site '2.71828E+15'",
        "has only the first digits of a long number",
    ),
    of_table(
        "true and false",
        _SAME,
        visits(pulse=visits()["pulse"] > 70),
        like(np.stack([visits()["pulse"] > 70, _NUMBERS[:, 1]], axis=1)),
    ),
    Case(
        "paths of Windows",
        "the image of each row",
        ("csv",),
        _listed_images(None, lambda k: f"part_{k % 2}\\IM_{k:04d}.png"),
        _its_images,
    ),
    Case(
        "ids without ending",
        "refused",
        ("csv",),
        _listed_images(None, lambda k: f"IM_{k:04d}"),
        _its_images,
        ("row 2", "'IM_0000' in column 'image_id'", "path_pattern='{image_id}.jpg'"),
    ),
    Case(
        "the same, with path_pattern",
        "the image of each row",
        ("csv",),
        _listed_images("{image_id}.png", lambda k: f"IM_{k:04d}"),
        _its_images,
    ),
    Case(
        "the same, one file missing",
        "refused",
        ("csv",),
        _listed_images("{image_id}.png", lambda k: f"IM_{k + (k > 20) * 90:04d}"),
        _its_images,
        ("a.csv lists IM_0111.png and 2 more, not found",),
    ),
)

# J. Messages.


def _absolute(form: str, folder: pathlib.Path) -> data.Federation:
    for k in range(N):
        write(folder / "scans" / f"{k}.png", noise(k, 4, 4, 3))
    lines = ["path,label,site"]
    sites = ["Jena"] * (N // 2) + ["Ulm"] * (N // 2)
    lines += [f"{folder}/scans/{k}.png,{'xy'[k // 2 % 2]},{sites[k]}" for k in range(N)]
    (folder / "a.csv").write_text("\n".join(lines))
    return data.load_federation("table", "natural", data_dir=str(folder / "a.csv"))


def _elsewhere(form: str, folder: pathlib.Path) -> data.Federation:
    (folder / "a.csv").write_text("path,label,site\n/etc/hostname,x,Jena\n")
    return data.load_federation("table", "natural", data_dir=str(folder / "a.csv"))


def _duplicates(made: data.Federation) -> str:
    report = partition.summarize("own", made)
    (line,) = [line for line in report.splitlines() if "duplicate" in line]
    return f"{line.removeprefix('- ')}; {samples(made)}"


_TWICE = _IMAGES.copy()
_TWICE[1] = _TWICE[0]
MESSAGES = (
    of_arrays(
        "an image at two sites, in the report",
        "1 duplicate at several sites; 24 samples; warned",
        _TWICE,
        np.where(np.arange(N) < 2, "benign", _TWO),
        _duplicates,
        "1 sample occurs at several sites, for example sample 0 and sample 1",
        test_seed=1,
    ),
    Case("absolute paths in the folder", "24 samples", ("csv",), _absolute, samples),
    Case(
        "an absolute path elsewhere",
        "refused",
        ("csv",),
        _elsewhere,
        samples,
        ("'/etc/hostname', which is not a path below",),
    ),
    of_table(
        "one sample of each class at each site",
        "refused",
        visits().drop_duplicates(["label", "site"]),
        samples,
        "there are no test samples; no class has a sample to spare",
    ),
    of_table(
        "no row marked as test",
        "refused",
        visits(split="train"),
        samples,
        "there are no test samples; none is marked so",
    ),
    of_table(
        "a column that does not exist",
        "refused",
        visits(),
        samples,
        "column 'diagnosis' is missing, there are pulse, hours",
        "label_column can name another",
        label_column="diagnosis",
    ),
    of_table(
        "one column for labels and sites",
        "refused",
        visits(),
        samples,
        "site_column=site: is the column of the labels; name that of the sites, or none",
        label_column="site",
    ),
    of_table(
        "a column of another kind",
        "refused",
        visits(hours=_with(visits()["hours"].astype(object).tolist(), "two")),
        samples,
        "'two' in column 'hours' is not a finite number",
    ),
    of_arrays(
        "only one class", "refused", _IMAGES, ["benign"] * N, classes, "holds only the class benign"
    ),
    of_arrays(
        "fewer labels than images",
        "refused",
        _IMAGES,
        _TWO[:-3],
        classes,
        "labels have shape (21,), not (24,)",
    ),
    of_folder(
        "images without folders of classes",
        "refused",
        {"Jena": 3, "Ulm": 3},
        classes,
        "Jena holds images and no folders of classes",
    ),
)

# Tasks that are not classification of single samples.

_EYE = np.eye(3, dtype=int)[np.arange(N) % 3]
TASKS = (
    of_arrays(
        "several findings of an image",
        "refused",
        _IMAGES,
        _EYE | [[1, 0, 0]],
        samples,
        "(multi-label)",
        "make one label column",
    ),
    of_table(
        "two findings in a cell",
        "refused",
        visits(label=["cyst|stone", "cyst", "none"] * (N // 3)),
        samples,
        "'cyst|stone'",
        "(multi-label)",
    ),
    of_arrays(
        "masks", "refused", _IMAGES, (_IMAGES > 99).astype(int), samples, "masks (segmentation)"
    ),
    of_folder(
        "folders img and masks", "refused", {"img": 3, "masks": 3}, samples, "masks beside img"
    ),
    of_arrays(
        "boxes",
        "refused",
        _IMAGES,
        np.random.default_rng(1).uniform(1, 5, (N, 4)),
        samples,
        "boxes (object detection)",
    ),
    of_table(
        "numbers to be predicted",
        "refused",
        visits(label=np.linspace(1, 9, N) ** 2),
        samples,
        "(regression)",
        "make classes of them, such as ranges",
    ),
    of_arrays(
        "volumes",
        "refused",
        _first((6, 6, 6)),
        _TWO,
        samples,
        "volumes and videos (3-D)",
        "use slices or frames",
    ),
)

SECTIONS = {
    "Names of classes and sites": NAMES,
    "Missing values": MISSING,
    "Columns that must not be inputs": COLUMNS,
    "Parts, patients and sites": PARTS,
    "Arrays, and layouts of others": ARRAYS_AND_LAYOUTS,
    "Tables of spreadsheets": SPREADSHEETS,
    "Messages": MESSAGES,
    "Other tasks": TASKS,
}

"""From the files of UCI's heart disease data to served models, by the commands of the guide."""

import json
import re
import subprocess
import sys
import types

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from benchmarks import processes
from tests.export.test_serving import Client
from tff_pcdd.training.run_directory import read_config

pytestmark = pytest.mark.slow

NAMES = ["age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang"]
NAMES += ["oldpeak", "slope", "ca", "thal"]
GUIDE = (processes.ROOT / "docs/how-to/own_data.md").read_text(encoding="utf-8")


def write(folder, hospital, rows, generator):
    """A file in the layout of UCI's, with the quirks of this hospital."""
    lines = []
    for index in range(rows):
        label = index % {"hungarian": 2, "switzerland": 4}.get(hospital, 5)
        thal = (3, 6, 7)[generator.integers(3)]
        values = [generator.integers(30, 76), generator.integers(2), generator.integers(1, 5)]
        values += [generator.integers(94, 200), generator.integers(150, 400), generator.integers(2)]
        values += [generator.integers(3), generator.integers(80, 190), label > 1]
        values += [
            round(generator.normal(label, 1), 1),
            generator.integers(1, 4),
            label,
            thal,
            label,
        ]
        cells = [f"{value:g}" for value in map(float, values)]
        if hospital == "cleveland":
            cells[:13] = [f"{float(value):.1f}" for value in values[:13]]
            cells[11] = "?" if index == 7 else cells[11]
        else:
            for column in (10, 11, 12):
                if generator.random() < 0.7:
                    cells[column] = "?"
        if hospital == "hungarian":
            cells[4] = "-9" if index % 9 == 0 else cells[4]
            cells[8] = "-9.0" if index % 11 == 0 else cells[8]
        if hospital == "switzerland":
            cells[4] = "0"
        lines.append(",".join(cells))
    end = "\r\n" if hospital == "va" else "\n"
    text = end.join(lines) + (end if hospital != "hungarian" else "")
    (folder / f"processed.{hospital}.data").write_bytes(text.encode())


@pytest.fixture(scope="module")
def heart(tmp_path_factory):
    """The directory in which the commands of the guide were run, without the server."""
    directory = tmp_path_factory.mktemp("heart")
    (directory / "heart").mkdir()
    generator = np.random.default_rng(1)
    for hospital, rows in (("cleveland", 60), ("hungarian", 50), ("switzerland", 33), ("va", 41)):
        write(directory / "heart", hospital, rows, generator)
    (directory / "heart" / "reprocessed.hungarian.data").write_text("1 2 3\n")
    (commands,) = re.findall(r"^```\n(mkdir .*?)^make serve", GUIDE, re.M | re.S)
    commands = commands.replace(".venv/bin/python", sys.executable)
    commands = commands.replace("--output_dir", "--rounds=3 --runtime=inprocess --output_dir")
    done = subprocess.run(
        ["bash", "-euc", commands],
        cwd=directory,
        env=processes.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return types.SimpleNamespace(directory=directory, output=done.stdout, messages=done.stderr)


@pytest.fixture(scope="module")
def table(heart):
    """The raw files in pandas, with the names of the rows."""
    parts = []
    for path in sorted((heart.directory / "heart").glob("processed.*")):
        part = pd.read_csv(path, header=None, names=[*NAMES, "label"], dtype=str)
        hospital = path.name.split(".")[1]
        parts.append(part.set_axis([f"row {row + 2} of {hospital}.csv" for row in part.index]))
    table = pd.concat(parts)
    table.loc[pd.to_numeric(table["chol"], errors="coerce") == 0, "chol"] = "?"
    return table


@pytest.fixture(scope="module")
def federation(heart):
    directory = heart.directory
    return read_config(directory / "runs/heart", str(directory / "heart/tables")).data.build()


def test_the_samples_are_those_of_the_files(table, federation, heart):
    assert federation.client_ids == ("cleveland", "hungarian", "switzerland", "va")
    assert federation.class_names == ("0", "1", "2", "3", "4")
    rows = list(federation.train.ids)
    numbers = table[NAMES].apply(pd.to_numeric, errors="coerce").replace(-9, np.nan)
    train = numbers.loc[rows]
    blocks = []
    for name in NAMES:
        if name in ("cp", "restecg", "slope", "thal"):
            blocks += [train[name] == value for value in sorted(train[name].dropna().unique())]
        else:
            blocks.append(train[name].fillna(train[name].median()))
        if train[name].isna().any():
            blocks.append(train[name].isna())
    expected = np.stack([block.astype(np.float32) for block in blocks], axis=1)
    np.testing.assert_array_equal(federation.train.x, expected)
    assert federation.train.y.tolist() == table["label"].loc[rows].astype(int).tolist()
    assert f"column 'chol' in {numbers['chol'].isna().sum()}" in heart.messages


def rows_of_test(table, federation):
    """The test part as a person sends it: numbers as they are in the files, null for `?`."""
    rows = list(federation.test.ids)
    return [
        {name: None if cell == "?" else float(cell) for name, cell in record.items()}
        for record in table[NAMES].loc[rows].to_dict("records")
    ]


def test_exported_models_take_raw_columns(heart, table, federation):
    model = tf.saved_model.load(str(heart.directory / "exported/global/1"))
    rows = rows_of_test(table, federation)
    columns = {
        name: tf.constant([np.nan if row[name] is None else row[name] for row in rows], tf.float32)
        for name in NAMES
    }
    found = model.signatures["serving_columns"](**columns)["class_id"].numpy()
    accuracy = 100 * np.mean(found == federation.test.y)
    assert f"global/1: accuracy {accuracy:.2f} %" in heart.output


@pytest.mark.skipif(not processes.SERVING_PYTHON.exists(), reason="the server is not installed")
def test_the_server_takes_rows_by_name_and_in_order(heart, table, federation):
    rows = rows_of_test(table, federation)
    (body,) = re.findall(r"-d '(\{\"instances\": \[\n    \{\"age\".*?)'", GUIDE, re.S)
    with processes.model_server(heart.directory / "exported") as (_, port):
        client = Client(port)
        status, answer = client.predict("global", {"instances": rows})
        assert status == 200, answer
        found = [prediction["class_id"] for prediction in answer["predictions"]]
        accuracy = 100 * np.mean(found == federation.test.y)
        assert f"global/1: accuracy {accuracy:.2f} %" in heart.output
        lists = [list(row.values()) for row in rows]
        for instances in (rows, lists):
            request = {"instances": instances, "signature_name": "serving_columns"}
            assert client.predict("global", request) == (status, answer)
        turned = {name: [row[name] for row in rows] for name in NAMES}
        status, outputs = client.predict("global", {"inputs": turned})
        assert (status, outputs["outputs"]["class_id"]) == (200, found)
        status, answer = client.predict("personal-va", json.loads(body))
        assert status == 200, answer
        assert answer["predictions"][0]["label"] in federation.class_names
        status, answer = client.predict("global", {"instances": [{**rows[0], "cp": 9}]})
        assert (status, answer) == (
            400, {"error": "row 0: 'cp' is 9, not one of '1', '2', '3', '4'"}
        )  # fmt: skip
        status, answer = client.predict("global", {"instances": []})
        assert (status, answer) == (200, {"predictions": []})

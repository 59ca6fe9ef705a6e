"""`tasks.predict` for arrays, LEAF's JSON files, texts and images in tables and folders."""

import csv
import io
import itertools
import json
import shutil

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.cli.stages import without_stages
from tests.cli.test_predict import accuracy, agree, measured
from tests.cli.test_refusals import check
from tests.data.refusals import unusable
from tests.data.test_own_folder import make
from tff_pcdd.data import new_samples
from tff_pcdd.data.sources._leaf_formats import ALPHABET
from tff_pcdd.training import restore_run
from tff_pcdd.training.run_directory import read_config

pytestmark = pytest.mark.integration

USERS = {"A": "to be", "B_C": "or not, that is the question"}


@pytest.fixture
def ask(call_here, tmp_path):
    """Calls the program: its result without stages, and the rows of its file."""

    def ask(root, data_dir, *flags):
        output = tmp_path / "answers.csv"
        places = (f"--export_dir={root / 'out'}", f"--data_dir={data_dir}")
        result = call_here("predict", *places, f"--output_file={output}", "--overwrite", *flags)
        if result[0]:
            return (*result[:2], without_stages(result[2])), []
        with open(output, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        output.unlink()
        return result[1].splitlines()[:-1], rows

    return ask


def arrays(vectors=False):
    generator = np.random.default_rng(0)
    y = np.array(["round", "flat"])[np.arange(60) % 2]
    x = generator.integers(0, 99, (60, 6, 5), np.uint8)
    x[y == "flat", ::2] += 100
    x = x.reshape(60, -1).astype(np.float32)[:, :7] if vectors else x
    return {"x": x, "y": y, "site": np.array(["St. Mary", "Oslo", "Oslo"])[np.arange(60) % 3]}


@pytest.fixture(scope="module", params=["images", "vectors"])
def of_arrays(request, trained_here, tmp_path_factory):
    path = tmp_path_factory.mktemp("arrays") / "all.npz"
    samples = arrays(request.param == "vectors")
    np.savez(path, **samples)
    return trained_here("npz", data_dir=str(path)), path, samples


def test_arrays_have_the_answers_of_the_run(of_arrays, ask, tmp_path):
    root, path, samples = of_arrays
    out, rows = ask(root, path)
    assert [row["id"] for row in rows] == [f"sample {number}" for number in range(60)]
    assert [row["label"] for row in rows] == samples["y"].tolist()
    agree(rows, measured(root / "run", "global"))
    oslo = [row for row, site in zip(rows, samples["site"], strict=True) if site == "Oslo"]
    other = [row for row, site in zip(rows, samples["site"], strict=True) if site != "Oslo"]
    assert out == [
        f"accuracy {accuracy(rows)}, 60 rows",
        f"Oslo: accuracy {accuracy(oslo)}, 40 rows",
        f"St. Mary: accuracy {accuracy(other)}, 20 rows",
    ]
    y = np.where(np.arange(60) == 7, "", samples["y"])
    np.savez(tmp_path / "x.npz", x=samples["x"], y=y)
    partly, found = ask(root, tmp_path / "x.npz")
    assert partly == [f"accuracy {accuracy(rows[:7] + rows[8:])}, 59 rows"]
    assert found == [{**row, "label": label} for row, label in zip(rows, y, strict=True)]
    np.savez(tmp_path / "x.npz", x=samples["x"])
    _, found = ask(root, tmp_path / "x.npz", "--model_name=Oslo")
    agree(found, measured(root / "run", "personal", "Oslo"))
    assert "label" not in found[0] and "own_prediction" in found[0]
    folder = tmp_path / "clients"
    folder.mkdir()
    for site in ("Oslo", "St. Mary"):
        own = samples["site"] == site
        y = (samples["y"][own] == "round").astype(int)
        np.savez(folder / f"{site}.npz", x=samples["x"][own], y=y)
    result, _ = ask(root, folder)
    assert (
        "no label is a class of the model, which are classes flat, round; there are 0, 1"
        in (result[2])
    )
    for site in ("Oslo", "St. Mary"):
        own = samples["site"] == site
        np.savez(folder / f"{site}.npz", x=samples["x"][own], y=samples["y"][own])
    again, found = ask(root, folder)
    assert again == out
    assert [row["id"] for row in found[39:41]] == ["sample 39 of Oslo", "sample 0 of St. Mary"]
    assert [{**row, "id": ""} for row in found] == [{**row, "id": ""} for row in (*oslo, *other)]


def test_files_of_clients_as_pfllib_writes_them(trained_here, ask, tmp_path):
    """Images are [n, channels, height, width] there, and the arrays are in a pickled dictionary."""
    samples = arrays()
    for place, number in (("train/0", 20), ("train/1", 20), ("test/0", 8), ("test/1", 7)):
        path = tmp_path / f"{place}.npz"
        path.parent.mkdir(exist_ok=True)
        x, y = samples["x"][-number:, None] / 255, samples["y"][-number:] == "flat"
        np.savez(path, data={"x": x.astype(np.float32), "y": y.astype(int)})
    root = trained_here("npz", data_dir=str(tmp_path))
    out, rows = ask(root, tmp_path / "test")
    known = measured(root / "run", "global").values()
    expected = [row for client in "01" for row in known if row["client"] == client]
    agree(rows, {row["id"]: each for row, each in zip(rows, expected, strict=True)})
    assert [line.partition(":")[0] for line in out[1:]] == ["0", "1"]
    of_first, found = ask(root, tmp_path / "test" / "0.npz")
    assert found == rows[:8]
    assert of_first == [out[1].removeprefix("0: "), out[1]]


def test_arrays_that_the_model_cannot_take(of_arrays, ask, tmp_path):
    root, _, samples = of_arrays
    x, path = samples["x"], tmp_path / "a.npz"
    is_image = x.dtype == np.uint8
    takes = "images, whole numbers from 0 to 255 (uint8) [n, 6, 5, 1]"
    takes = takes if is_image else "features, float32 [n, 7]"
    kind = "whole numbers from 0 to 255 (uint8)" if is_image else "float32"
    shape = [60, 5, 5, 1] if is_image else [60, 6]
    empty = (0, 6, 5) if is_image else (0, 7)
    wrong = x[:, 1:] / 2 if not is_image else x[:, 1:]
    cases = [
        ({"y": samples["y"]}, f"{path}: array 'x' is missing, there are y; x is needed"),
        (
            {"x": wrong},
            f"{path}: the samples are {kind} of the shape {shape}; the model takes {takes}",
        ),
        ({"x": x[:0]}, f"{path}: there are no samples; the inputs have shape {empty}"),
        ({"x": x, "y": samples["y"][1:]}, "the labels have shape (59,), not (60,)"),
        ({"x": x.astype(str)}, f"{path}: the inputs are <U{3 if is_image else 32}, not numbers"),
        (
            {"x": x.astype(np.float32) * np.nan},
            f"{path}: values must be finite numbers in float32; ",
        ),
    ]
    if is_image:
        message = f"{path}: the samples are float32, and the model was trained on {kind}; save "
        cases.append(({"x": x / 255}, message))
    for given, message in cases:
        np.savez(path, **given)
        (status, out, err), _ = ask(root, path)
        assert (status, out, err.count("\n")) == (2, "", 1) and message in err, err
    np.savez(path, x=x)
    result, _ = ask(root, path, "--label_column=y")
    check(result, "predict", "--label_column=y: needs a table")
    result, _ = ask(root, path, "--label_folders")
    check(result, "predict", "--label_folders=True: needs a folder of images")
    path.write_bytes(path.read_bytes()[:99])
    result, _ = ask(root, path)
    check(result, "predict", f"{path} cannot be read as an .npz file: it is no whole archive")
    np.save(tmp_path / "x.npy", x)
    result, _ = ask(root, tmp_path / "x.npy")
    check(result, "predict", "it is a single array (.npy); save x with np.savez")
    result, _ = ask(root, tmp_path / "b.npz")
    check(result, "predict", f"'{tmp_path}/b.npz' cannot be read: No such file or directory")


def write_leaf(folder, users):
    """A LEAF file of users with pairs of inputs and labels."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "users": [*users],
        "num_samples": [len(samples) for samples in users.values()],
        "user_data": {
            user: {"x": [x for x, _ in samples], "y": [y for _, y in samples]}
            for user, samples in users.items()
        },
    }
    (folder / "all.json").write_text(json.dumps(content), encoding="utf-8")


def speech(words):
    text = (f"\n{words} ~ " * 40)[:100]
    return [(text[start : start + 80], text[start + 80]) for start in range(0, 20, 2)]


@pytest.fixture(scope="module")
def of_texts(trained_here, tmp_path_factory):
    data_dir = tmp_path_factory.mktemp("shakespeare")
    for part in ("train", "test"):
        write_leaf(data_dir / part, {user: speech(words) for user, words in USERS.items()})
    settings = {"partition": "natural", "model": "lstm", "local_epochs": 1}
    return trained_here("shakespeare", data_dir=str(data_dir), **settings), data_dir


def test_texts_of_leaf_and_of_tables_have_the_answers_of_the_run(of_texts, ask, tmp_path):
    root, data_dir = of_texts
    out, rows = ask(root, data_dir / "test")
    expected = list(measured(root / "run", "global").values())
    names = [f"sample {number} of {user}" for user in USERS for number in range(10)]
    assert [row["id"] for row in rows] == names
    assert [row["label"] for row in rows] == [row["label"] for row in expected]
    agree(rows, dict(zip(names, expected, strict=True)))
    assert out == [
        f"accuracy {accuracy(rows)}, 20 rows",
        f"A: accuracy {accuracy(rows[:10])}, 10 rows",
        f"B_C: accuracy {accuracy(rows[10:])}, 10 rows",
    ]
    assert ask(root, data_dir / "test" / "all.json") == (out, rows)
    samples = [(*sample, user) for user in USERS for sample in speech(USERS[user])]
    table = pd.DataFrame(samples, columns=["words", "next", "site"])
    for name, write in (("a.csv", table.to_csv), ("a.parquet", table.to_parquet)):
        write(tmp_path / name, index=False)
        _, found = ask(root, tmp_path / name, "--text_column=words")
        assert found[0]["id"] == ("row 2" if name == "a.csv" else "row 0")
        for row, known in zip(found, rows, strict=True):
            assert {**row, "id": known["id"], "label": known["label"]} == known
    (tmp_path / "users").mkdir()
    for user, own in table.groupby("site"):
        own.drop(columns="site").to_csv(tmp_path / "users" / f"{user}.csv", index=False)
    _, again = ask(root, tmp_path / "users", "--text_column=words")
    assert [row["id"] for row in again[9:11]] == ["row 11 of A.csv", "row 2 of B_C.csv"]
    assert [{**row, "id": ""} for row in again] == [{**row, "id": ""} for row in found]
    table["next"] = table["next"].where(table["next"].str.strip() != "", None)
    table.to_csv(tmp_path / "a.csv", index=False)
    flags = ("--text_column=words", "--label_column=next")
    out, found = ask(root, tmp_path / "a.csv", *flags)
    correct = [row["prediction"] == row["label"] for row in found if row["label"]]
    assert 0 < len(correct) < 20
    assert out[0].startswith(f"accuracy {100 * np.mean(correct):.2f} % (95 % interval ")
    assert out[0].endswith(f", {len(correct)} rows")


def test_a_simulation_takes_texts_as_strings(of_texts):
    """Their ids are positions in LEAF's alphabet, 80 for others; blanks precede shorter texts."""
    root, _ = of_texts
    run = restore_run(read_config(root / "run"), root / "run")
    long, short = "~" + speech("to be")[0][0], "or not"
    text = [long[-80:], short.rjust(80)]
    ids = np.array([[ALPHABET.find(each) % 81 for each in line] for line in text], np.uint8)
    assert 80 in ids[0]
    for client in (None, "A"):
        np.testing.assert_array_equal(run.predict([long, short], client), run.predict(ids, client))
    found = run.simulation.features(np.array([long, short]))
    np.testing.assert_array_equal(found, run.simulation.features(ids))
    for single in (short, np.array(short), 5, None, {"text": [short]}):
        for ask_for in (run.predict, run.simulation.features):
            with unusable("x has the shape []; inputs are [n, 80]"):
                ask_for(single)


def test_texts_that_cannot_be_read(of_texts, ask, tmp_path):
    root, data_dir = of_texts
    result, _ = ask(root, data_dir)
    check(result, "predict", f"{data_dir}: holds no images; {data_dir}/test does hold samples")
    np.savez(tmp_path / "a.npz", x=np.zeros([3, 4], np.float32))
    (status, _, err), _ = ask(root, tmp_path / "a.npz")
    assert status == 2 and err.endswith("of the shape [3, 4]; the model takes texts [n]\n")
    (tmp_path / "a.csv").write_text("text,n\nto be,1\n,2\n")
    for flags, message in (
        ((), "column 'path' of image files is missing, there are text, n; --path_column can name"),
        (
            ("--text_column=texts",),
            "column 'texts' is missing, there are text, n; --text_column ca",
        ),
        (("--text_column=text",), "a.csv, row 3: the text is missing"),
    ):
        result, _ = ask(root, tmp_path / "a.csv", *flags)
        check(result, "predict", message)
    for users, message in (
        ({"A": [("to be", "x")]}, "all.json: user 'A': every input needs 80 characters"),
        ({"A": [(" " * 80, "xy")]}, "all.json: user 'A': every label needs one character"),
        ({"A": []}, "leaf: no user has any sample"),
    ):
        write_leaf(tmp_path / "leaf", users)
        (status, out, err), _ = ask(root, tmp_path / "leaf")
        assert (status, out, err.count("\n")) == (2, "", 1) and message in err, err


def test_leaf_files_of_another_data_set(of_arrays, of_texts, ask):
    root, _, samples = of_arrays
    (status, _, err), _ = ask(root, of_texts[1] / "test")
    takes = "images [n, 6, 5, 1]" if samples["x"].dtype == np.uint8 else "features [n, 7]"
    assert status == 2 and err.endswith(
        "LEAF's JSON files are for models of femnist, shakespeare, sent140, leaf_synthetic; this "
        f"one was trained on none of them: it takes {takes} and has the classes flat, round\n"
    )


def test_images_of_digits_are_not_those_of_femnist(of_texts):
    """Its first ten classes are the digits too; only the shape tells them apart."""
    digits = [str(number) for number in range(10)]
    message = "it takes images [n, 8, 8, 1] and has the classes 0, 1, 2, 3, 4, 5 and 4 more"
    with unusable(message):
        path = of_texts[1] / "test"
        new_samples.of_leaf(path, "images", (8, 8, 1), np.dtype(np.uint8), digits)


@pytest.mark.parametrize("is_grey", [True, False])
def test_writers_of_leaf_have_the_answers_of_the_run(is_grey, trained_here, ask, tmp_path):
    """Grey levels are bytes in training; other pixels are floats, to which grey ones are fitted."""
    generator = np.random.default_rng(0)

    def writer(labels, grey):
        pixels = generator.integers(0, 256, (len(labels), 784)) / 255
        pixels = pixels if grey else pixels * 0.9
        return [(x.round(4).tolist(), label) for x, label in zip(pixels, labels, strict=True)]

    write_leaf(tmp_path / "train", {"w1": writer([0, 7, 9], True), "w2": writer([1, 2], is_grey)})
    write_leaf(tmp_path / "test", {"w1": writer([0, 7], True), "w2": writer([1], True)})
    root = trained_here("femnist", partition="natural", data_dir=str(tmp_path))
    out, rows = ask(root, tmp_path / "test")
    expected = list(measured(root / "run", "global").values())
    agree(rows, {row["id"]: known for row, known in zip(rows, expected, strict=True)})
    assert [line.partition(":")[0] for line in out[1:]] == ["w1", "w2"]
    if is_grey:
        write_leaf(tmp_path / "test", {"w1": writer([0, 7], False)})
        (status, _, err), _ = ask(root, tmp_path / "test")
        assert status == 2 and "the samples are float32, and the model was trained on whole" in err


@pytest.fixture(scope="module")
def of_images(trained_here, tmp_path_factory):
    data_dir = tmp_path_factory.mktemp("images") / "data"
    make(data_dir, {site: {"cat": 6, "dog": 6} for site in ("St. Mary", "Lyon")})
    return trained_here("folder", data_dir=str(data_dir)), data_dir


@pytest.fixture
def own_images(of_images, tmp_path):
    """The run, and a copy of its images, to which a test adds files."""
    return of_images[0], shutil.copytree(of_images[1], tmp_path / "data")


def test_images_in_a_folder_or_in_a_list(own_images, ask, tmp_path):
    root, data_dir = own_images
    paths = sorted(path.relative_to(data_dir) for path in data_dir.glob("*/*/*"))
    for hidden in ("Lyon/._0.png", ".trash/1.png"):
        (data_dir / hidden).parent.mkdir(exist_ok=True)
        (data_dir / hidden).write_bytes(b"")
    _, rows = ask(root, data_dir)
    assert [row["id"] for row in rows] == list(map(str, paths))
    agree(rows, measured(root / "run", "global"))
    table = pd.DataFrame({"label": [path.parts[1] for path in paths], "path": paths})
    table["site"] = [path.parts[0] for path in paths]
    table.to_csv(data_dir / "list.csv", index=False)
    out, listed = ask(root, data_dir / "list.csv", "--label_column=label")
    for number, (row, other) in enumerate(itertools.zip_longest(listed, rows), 2):
        assert row.items() >= {**other, "id": f"row {number} ({other['id']})"}.items()
    assert out[:2] == [
        f"accuracy {accuracy(listed)}, 24 rows",
        f"Lyon: accuracy {accuracy(listed[:12])}, 12 rows",
    ]
    (data_dir / "Lyon" / "new.tif").write_bytes(b"II*\0" + bytes(100))
    refused, _ = ask(root, data_dir, "--label_column=a")
    check(refused, "predict", "--label_column=a: needs a table that lists the images")
    (status, _, err), _ = ask(root, data_dir)
    assert status == 2
    assert "new.tif: is a TIFF image; convert it to JPEG or PNG" in err
    assert not (tmp_path / "answers.csv").exists()


def test_images_in_folders_of_classes_in_tables_and_by_ids(own_images, ask, tmp_path):
    root, data_dir = own_images
    out, rows = ask(root, data_dir, "--label_folders")
    agree(rows, measured(root / "run", "global"))
    assert [row["label"] for row in rows] == [row["id"].split("/")[1] for row in rows]
    assert out[1:] == [
        f"{site}: accuracy {accuracy(own)}, 12 rows"
        for site, own in (("Lyon", rows[:12]), ("St. Mary", rows[12:]))
    ]
    _, plain = ask(root, data_dir)
    assert [
        {**row, "label": known["label"]} for row, known in zip(plain, rows, strict=True)
    ] == rows
    table = pd.DataFrame({"image_id": [row["id"][-7:-4] for row in rows]})
    table["label"] = [row["label"] for row in rows]
    table["image"] = [(data_dir / row["id"]).read_bytes() for row in rows]
    table.drop(columns="image").to_csv(data_dir / "list.csv", index=False)
    table.to_parquet(tmp_path / "a.parquet", index=False)
    for path, flag in (
        (data_dir / "list.csv", "--path_pattern={image_id}.png"),
        (data_dir, "--path_pattern={image_id}.png"),
        (tmp_path / "a.parquet", "--path_column=image"),
    ):
        measures, found = ask(root, path, flag, "--label_column=label")
        # The table in a folder is a site.
        sites = [f"list: {out[0]}"] * path.is_dir()
        assert measures == [out[0], *sites]
        assert [{**row, "id": ""} for row in found] == [{**row, "id": ""} for row in rows]
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "TIFF")
    table.loc[3, "image"] = file.getvalue()
    table.to_parquet(tmp_path / "a.parquet", index=False)
    (status, _, err), _ = ask(root, tmp_path / "a.parquet", "--path_column=image")
    assert status == 2 and err.endswith(
        "a.parquet, row 3: is a TIFF image; convert it to JPEG or PNG; --skip_broken_images leaves "
        "such answers empty\n"
    )
    result, _ = ask(root, data_dir / "Lyon", "--label_folders")
    check(result, "predict", "cat holds images and no folders of classes; the layout is site")


def test_broken_images_are_refused_or_have_no_answer(own_images, ask, tmp_path):
    """The other answers, and their accuracies, are those without the broken files."""
    root, data_dir = own_images
    _, whole = ask(root, data_dir, "--label_folders")
    half, empty, page = (data_dir / whole[number]["id"] for number in (2, 13, 20))
    half.write_bytes(half.read_bytes()[:60])
    empty.write_bytes(b"")
    page.write_bytes(b"<html>404</html>")
    advice = "; --skip_broken_images leaves such answers empty"
    for path, reason in ((half, "is broken"), (empty, "is empty"), (page, "is a web page")):
        (status, _, err), _ = ask(root, path.parent)
        assert status == 2 and f"{path}: " in err and reason in err and advice in err, err
    for flags, labels in (((), False), (("--label_folders",), True)):
        out, rows = ask(root, data_dir, "--skip_broken_images", *flags)
        assert [row["id"] for row in rows] == [row["id"] for row in whole]
        broken = [
            row for row in rows if str(data_dir / row["id"]) in {str(half), str(empty), str(page)}
        ]
        given = {"id", "label"} if labels else {"id"}
        assert all(not value for row in broken for name, value in row.items() if name not in given)
        others = [row for row in rows if row["prediction"]]
        assert len(broken) == 3 and len(others) == 21
        expected = [row for row in whole if row["id"] in {other["id"] for other in others}]
        for row, known in zip(others, expected, strict=True):
            assert row["prediction"] == known["prediction"]
            for name in ("probability_cat", "probability_dog"):
                assert float(row[name]) == pytest.approx(float(known[name]), abs=1e-5)
    assert out == [
        f"accuracy {accuracy(others)}, 21 rows",
        f"Lyon: accuracy {accuracy(others[:11])}, 11 rows",
        f"St. Mary: accuracy {accuracy(others[11:])}, 10 rows",
    ]
    alone = tmp_path / "alone"
    alone.mkdir()
    empty.rename(alone / "0.png")
    twice = alone / "twice.csv"
    twice.write_text("path\n0.png\n0.png\n", encoding="utf-8")
    for place in (alone, twice):
        (status, _, err), _ = ask(root, place, "--skip_broken_images")
        assert status == 2 and "no image can be read: " in err and "is empty" in err

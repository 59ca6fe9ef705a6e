"""Data of your own with the programs: defaults, refusals in time, and data that change."""

import json
import time

import numpy as np
import pytest
from PIL import Image

from tests.cli.test_refusals import check
from tests.data.test_own_folder import make
from tff_pcdd import data

ROUND = ("--rounds=1", "--local_epochs=1", "--model=mlp", "--noprogress")


@pytest.fixture(scope="module")
def trained(tmp_path_factory, succeed):
    """A run on a folder, and the folder."""
    sites = {site: {"cat": 5, "dog": 5} for site in ("St. Mary", "Charité", "Lyon")}
    root = make(tmp_path_factory.mktemp("own") / "data", sites)
    run = root.parent / "run"
    flags = ("--dataset=folder", f"--data_dir={root}", *ROUND, f"--output_dir={run}")
    succeed("train", *flags)
    return root, run


@pytest.mark.parametrize("program", ["train", "compare", "partition"])
@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ("folder", "is not a directory"),
        ("table", "does not exist"),
        ("npz", "does not exist"),
        ("cifar10", "is not a directory"),
        ("fed_isic2019", "is not a directory"),
        ("femnist", "needs folders train and test"),
        ("tff_emnist", "has no emnist"),
    ],
)
def test_missing_data_are_refused_at_once(program, dataset, message, call_here, tmp_path):
    """Without the modules that take seconds to import."""
    # A partition that is named gives no warning that users are pooled.
    flags = (f"--data_dir={tmp_path / 'none'}", "--partition=iid")
    # Not the time on a clock, which depends on what else the machine does.
    started = time.process_time()
    result = call_here(program, f"--dataset={dataset}", *flags, f"--output_dir={tmp_path / 'out'}")
    assert time.process_time() - started < 1.5
    check(result, program, f"data_dir={tmp_path / 'none'} {message}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("dataset", "folder"),
    [
        *(("folder", "data"), ("table", "data.csv"), ("npz", "data.npz")),
        *(("cifar10", "data"), ("femnist", "data"), ("tff_emnist", "data")),
    ],
)
def test_a_home_directory_that_is_not_known_is_missing_data(dataset, folder, call_here, tmp_path):
    """That of a user whose name is misspelled."""
    flags = ("--partition=iid", f"--output_dir={tmp_path / 'out'}")
    result = call_here("train", f"--dataset={dataset}", f"--data_dir=~no_user/{folder}", *flags)
    check(result, "train", f"data_dir=~no_user/{folder} ")


def test_a_run_in_a_home_directory_that_is_not_known(call_here):
    result = call_here("report", "--run_dir=~no_user/run")
    check(result, "report", "--run_dir=~no_user/run: holds no run")


@pytest.mark.integration
@pytest.mark.parametrize("program", ["train", "compare"])
def test_missing_data_are_refused_before_tensorflow_is_imported(program, call, tmp_path):
    flags = ("--dataset=folder", "--data_dir=/none", f"--output_dir={tmp_path / 'run'}")
    _check_refused_early(call(program, *flags, python=("-X", "importtime")))


@pytest.mark.integration
def test_unusable_data_are_refused_before_tensorflow_is_imported(call, tmp_path):
    (tmp_path / "a.csv").write_text("path,label\na.png,1\n")
    flags = (f"--data_dir={tmp_path / 'a.csv'}", f"--output_dir={tmp_path / 'run'}")
    _check_refused_early(call("train", "--dataset=table", *flags, python=("-X", "importtime")))


def _check_refused_early(result):
    status, _, err = result
    assert status == 2
    imported = {line.rsplit("|", 1)[-1].strip() for line in err.splitlines()}
    assert not {m for m in imported if m.split(".")[0] == "tensorflow"}


def test_settings_that_a_data_set_ignores_are_refused(call_here, tmp_path):
    for flags, message in (
        (("--data_dir=/x",), "--data_dir=/x: applies only with --dataset="),
        (("--image_size=8",), "--image_size=8: applies only with --dataset=celeba|folder|table"),
        (("--feature_columns=all",), "--feature_columns=all: applies only with --dataset=table"),
        (
            ("--dataset=table", "--data_dir=x", "--feature_columns=all", "--image_size=8"),
            "--image_size=8: applies to images",
        ),
        (("--dataset=npz",), "--data_dir: is missing; npz needs the path of its .npz file"),
    ):
        check(call_here("train", *flags, f"--output_dir={tmp_path / 'run'}"), "train", message)


def test_a_dry_run_needs_no_data(call_here, tmp_path):
    flags = ("--dry_run", "--data_dir=/none", f"--output_dir={tmp_path / 'run'}")
    status, out, err = call_here("train", "--dataset=folder", *flags)
    # The clients are the sites, without a partition.
    assert (status, out.split(",")[:2]) == (0, ["fedavg seed 0: folder: none", " 30 rounds"]), err
    missing = (
        "train: warning: the data are not on this machine: dataset folder: --data_dir=/none is not"
    )
    assert missing in err
    status, out, err = call_here("train", "--dataset=table", "--feature_columns=a,b", *flags)
    assert status == 0, err
    assert "mlp" in out


@pytest.mark.integration
def test_sites_are_the_clients(trained):
    _, run = trained
    config = json.loads((run / "config.json").read_text())
    assert (config["dataset"], config["partition"], config["test_fraction"]) == (
        "folder",
        "natural",
        None,
    )


@pytest.mark.integration
def test_data_that_have_changed_are_noticed(trained, call_here):
    """Also if the name and the size of an image stay the same; exports restore runs alike."""
    root, run = trained
    path = root / "Lyon" / "cat" / "020.png"
    before = path.read_bytes()
    pixels = np.array(Image.open(path))
    pixels[0, 0, 0] ^= 1
    Image.fromarray(pixels).save(path)
    try:
        status, out, err = call_here("evaluate", f"--run_dir={run}")
        # After lines that say what is being done.
        result = (status, out, err.splitlines(keepends=True)[-1])
        check(result, "evaluate", "was written with other data (samples, or their division")
    finally:
        path.write_bytes(before)


@pytest.mark.integration
def test_exports_refuse_early(trained, call_here, tmp_path):
    """Existing versions, missing data, and unknown clients if a table names the known ones."""
    _, run = trained
    (tmp_path / "out" / "global" / "1").mkdir(parents=True)
    (tmp_path / "out" / "models.config").write_text("")
    started = time.process_time()
    result = call_here("export", f"--run_dir={run}", f"--export_dir={tmp_path / 'out'}")
    check(result, "export", f"--export_dir={tmp_path / 'out'}: already contains global/1")
    flags = (f"--run_dir={run}", f"--export_dir={tmp_path / 'new'}")
    check(call_here("export", *flags, "--data_dir=/none"), "export", "/none is not a directory")
    table = run / "clients.csv"
    existed = table.exists()
    if not existed:
        table.write_text("client,ga\nCharité,1\nLyon,1\nSt. Mary,1\n")
    try:
        result = call_here("export", *flags, "--clients=st-mary,Berlin")
        message = "there is no client 'Berlin'; the 3 clients are Charité, Lyon, St. Mary"
        check(result, "export", message)
    finally:
        if not existed:
            table.unlink()
    assert time.process_time() - started < 1.5
    assert not (tmp_path / "new").exists()


@pytest.mark.integration
def test_sites_are_exported_under_short_names(trained, succeed, tmp_path):
    _, run = trained
    flags = (f"--run_dir={run}", f"--export_dir={tmp_path / 'out'}", "--clients=St. Mary,charite")
    out = succeed("export", *flags)
    assert [line.split("/1:")[0] for line in out.splitlines()[:3]] == [
        "global",
        "personal/charite",
        "personal/st-mary",
    ]
    card = (tmp_path / "out" / "personal" / "st-mary" / "1" / "model_card.md").read_text()
    assert "personal model of client St. Mary" in card
    assert "`personal-st-mary`" in card
    assert "The model multiplies stored inputs by 0.00392157, then subtracts 0." in card
    assert "divides by 0.2" in card
    assert json.loads((tmp_path / "out" / "sites.json").read_text()) == {
        "personal-charite": "Charité",
        "personal-st-mary": "St. Mary",
    }


# HAM10000: skin lesions, several images of many of them, in two folders.


def ham10000(root, lesions=60):
    """The metadata and the folders in the layout of the published files, with small images."""
    generator = np.random.default_rng(1)
    places = ("back", "face", "unknown", "lower extremity")
    lines, number = ["lesion_id,image_id,dx,dx_type,age,sex,localization"], 24306
    for lesion in range(lesions):
        disease = ("nv", "nv", "nv", "mel", "bkl", "bcc")[lesion % 6]
        age, sex = ("", "unknown") if lesion % 9 == 0 else (f"{lesion % 17 * 5}.0", "female")
        for _ in range(1 + lesion % 3):
            image = f"ISIC_{number:07d}"
            folder = root / f"HAM10000_images_part_{1 + number % 2}"
            folder.mkdir(parents=True, exist_ok=True)
            pixels = generator.integers(0, 256, (45, 60, 3), np.uint8)
            Image.fromarray(pixels).save(folder / f"{image}.jpg")
            row = (f"HAM_{lesion:07d}", image, disease, "histo", age, sex, places[lesion % 4])
            lines.append(",".join(row))
            number += 1
    (root / "HAM10000_metadata.csv").write_text("\n".join(lines) + "\n")
    return root / "HAM10000_metadata.csv"


HAM10000 = {
    "path_pattern": "{image_id}.jpg",
    "label_column": "dx",
    "group_column": "lesion_id",
    "image_size": 16,
    "validation_fraction": 0.2,
}
WITHOUT_SITES = {"site_column": "none", "partition": "class", "num_clients": 4}
BODY_PARTS = {"site_column": "localization", "partition": "natural"}


@pytest.mark.parametrize("settings", [WITHOUT_SITES, BODY_PARTS])
def test_no_lesion_of_ham10000_is_in_two_parts_or_clients(settings, tmp_path):
    path = ham10000(tmp_path)
    lesions = {}
    for row, line in enumerate(path.read_text().splitlines()[1:], 2):
        lesions[row] = line.split(",")[0]
    settings = {**HAM10000, **settings}
    clients = settings.pop("num_clients", None)
    partition = settings.pop("partition")
    made = data.load_federation("table", partition, clients, data_dir=str(path), **settings)
    assert made.class_names == ("bcc", "bkl", "mel", "nv")
    found = {}
    for client in made.clients:
        for part, ids, rows in (
            ("train", made.train.ids, client.train),
            ("validation", made.train.ids, client.validation),
            ("test", made.test.ids, client.test),
        ):
            for name in ids[rows]:
                lesion = lesions[int(name.split()[1])]
                found.setdefault(lesion, set()).add((client.client_id, part))
    assert len(found) == 60
    assert all(len(places) == 1 for places in found.values())
    assert {part for places in found.values() for _, part in places} == {
        *("train", "validation", "test")
    }


# Its files are read above; export/test_heart trains on files of a table, and exports.
@pytest.mark.integration
@pytest.mark.rare
def test_ham10000_is_trained_and_exported_from_its_files(succeed, tmp_path):
    """With the command of docs/how-to/own_data.md."""
    path, run = ham10000(tmp_path / "ham"), tmp_path / "run"
    flags = [f"--{name}={value}" for name, value in {**HAM10000, **WITHOUT_SITES}.items()]
    flags += ["--classes_per_client=2", "--early_stopping_patience=5"]
    succeed(
        *("train", "--dataset=table", f"--data_dir={path}"),
        *(*flags, *ROUND, f"--output_dir={run}"),
    )
    out = succeed("export", f"--run_dir={run}", f"--export_dir={tmp_path / 'export'}")
    assert out.startswith("global/1")
    card = (tmp_path / "export" / "global" / "1" / "model_card.md").read_text()
    rows = {line.split("|")[1].strip() for line in card.splitlines() if line.startswith("|")}
    assert {"bcc", "bkl", "mel", "nv"} <= rows

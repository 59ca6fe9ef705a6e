"""Image sets from folders, trained for a round by the program, with small images made here."""

import json

import pytest

from tests.support import write_image, write_table

pytestmark = pytest.mark.integration

ROUND = ("--model=simple_cnn", "--rounds=1", "--local_epochs=1", "--batch_size=4", "--noprogress")


def _finished(directory, clients, rows=1):
    summary = json.loads((directory / "summary.json").read_text())
    assert summary["rounds"] == rows
    assert 0 <= summary["ga_final"] <= 100
    counts = (directory / "metrics.csv").read_text().splitlines()
    assert len(counts) == 1 + rows
    config = json.loads((directory / "config.json").read_text())
    assert config.get("num_clients") == clients


def test_flamby_s_layout(call, succeed, tmp_path):
    """Centres as clients; then one image is broken, which is said in a line with its name."""
    root, run = tmp_path / "isic", tmp_path / "run"
    images = root / "ISIC_2019_Training_Input_preprocessed"
    rows = []
    for number in range(24):
        fold, center = ("test" if number % 3 == 2 else "train"), number % 2
        name = f"ISIC_{number:07d}"
        rows.append(
            {"image": name, "MEL": 0.0, "target": number % 8, "center": center, "fold": fold}
            | {"fold2": f"{fold}_{center}"}
        )
        write_image(images / f"{name}.jpg", value=10 * number)
    write_table(root / "train_test_split", rows)
    flags = ("--dataset=fed_isic2019", f"--data_dir={root}", "--partition=natural", *ROUND)
    succeed("train", *flags, f"--output_dir={run}")
    _finished(run, None)
    broken = images / "ISIC_0000003.jpg"
    broken.write_bytes(b"no image")
    status, out, err = call("train", *flags, f"--output_dir={run}", "--overwrite")
    assert status == 1
    assert out == ""
    reason = "image files are missing, broken or above max_image_pixels"
    assert err == f"train: error: {reason}: {broken}\n"


@pytest.mark.rare
def test_imagenet_lt_s_layout(succeed, tmp_path):
    root, run = tmp_path / "imagenet", tmp_path / "run"
    for part, number in (("train", 8), ("val", 2), ("test", 4)):
        lines = []
        for image in range(number):
            name = f"{'train' if part == 'train' else 'val'}/{part}_{image}.JPEG"
            write_image(root / name, value=20 * image)
            lines.append(f"{name} {image % 3}\n")
        (root / f"ImageNet_LT_{part}.txt").write_text("".join(lines))
    succeed(
        "train",
        "--dataset=imagenet_lt",
        f"--data_dir={root}",
        "--partition=iid",
        "--num_clients=2",
        *ROUND,
        f"--output_dir={run}",
    )
    _finished(run, 2)

"""Image files of your own in folders: what is read, how it is divided, and what is refused."""

import os
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.data.refusals import refuses, unusable
from tff_pcdd import data
from tff_pcdd.data import DataError, LoadRequest, sources
from tff_pcdd.export import inputs
from tff_pcdd.training import ExperimentConfig, Simulation
from tff_pcdd.training.run_directory import check_directory

SITES = {"Berlin": {"cat": 10, "dog": 5}, "Lyon": {"cat": 5}, "Oslo": {"deer": 6, "dog": 1}}


def write(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def noise(number, *shape):
    return np.random.default_rng(number).integers(0, 256, shape, np.uint8)


def make(root, sites=None, shape=(8, 8, 3), first=0):
    """A PNG of noise for each sample; no two are alike."""
    number = first
    for site, classes in (sites or SITES).items():
        for label, count in classes.items():
            for _ in range(count):
                write(root / site / label / f"{number:03d}.png", noise(number, *shape))
                number += 1
    return root


def refused(root, *parts, **options):
    with unusable(*parts):
        data.from_folder(root, **options)


def test_sites_are_clients_and_folders_name_classes(tmp_path):
    made = data.from_folder(make(tmp_path))
    assert made.client_ids == ("Berlin", "Lyon", "Oslo")
    assert made.class_names == ("cat", "deer", "dog")
    # A fifth of each site's samples, and of each class at least one stays in training.
    assert made.class_counts().tolist() == [[8, 0, 4], [4, 0, 0], [0, 5, 1]]
    assert made.test_class_counts().tolist() == [[2, 0, 1], [1, 0, 0], [0, 1, 0]]
    assert made.input_spec.shape == (8, 8, 3)
    assert all(name.endswith(".png") for name in made.train.ids)


def test_pixels_and_statistics(tmp_path):
    made = data.from_folder(make(tmp_path))
    pixels = {
        os.path.relpath(path, tmp_path): np.asarray(Image.open(path))
        for path in tmp_path.glob("*/*/*.png")
    }
    for part in (made.train, made.test):
        for x, y, name in zip(part.x, part.y, part.ids, strict=True):
            np.testing.assert_array_equal(x, pixels[name])
            assert made.class_names[y] == name.split(os.sep)[1]
    scaled = made.train.x.astype(np.float64) / 255
    np.testing.assert_allclose(made.input_spec.mean, scaled.mean((0, 1, 2)), rtol=1e-3)
    np.testing.assert_allclose(made.input_spec.std, scaled.std((0, 1, 2)), rtol=1e-3)
    assert made.input_spec.scale == 1 / 255


def test_images_that_do_not_fit_into_memory_are_read_batch_by_batch(tmp_path, monkeypatch):
    root = make(tmp_path)
    in_memory = data.from_folder(root)
    monkeypatch.setattr("tff_pcdd.data.sources._image_files._IN_MEMORY", 100)
    made = data.from_folder(root)
    assert made.input_spec.kind == "image_file"
    assert made.input_spec.mean == in_memory.input_spec.mean
    assert made.input_spec.std == in_memory.input_spec.std
    read = data.normalize(made.train.x, made.input_spec)
    expected = data.normalize(in_memory.train.x, in_memory.input_spec)
    np.testing.assert_array_equal(read, expected)


def test_models_predict_for_what_is_stored_in_memory_or_as_paths(tmp_path, monkeypatch):
    root = make(tmp_path / "images")
    config = ExperimentConfig.from_settings(
        dataset="folder", data_dir=str(root), partition="natural", model="mlp", rounds=1
    )
    answers = []
    for most in (1 << 30, 100):
        monkeypatch.setattr("tff_pcdd.data.sources._image_files._IN_MEMORY", most)
        with Simulation(config) as simulation:
            stored = simulation.federation.test.x
            answers.append([simulation.predict(stored), simulation.predict(stored, client=0)])
    assert stored.dtype.kind == "S"
    np.testing.assert_array_equal(answers[0], answers[1])


def test_the_test_part_of_a_site_does_not_depend_on_other_sites(tmp_path):
    one = data.from_folder(make(tmp_path / "a", SITES))
    more = make(tmp_path / "b", {**SITES})
    make(more, {"Aachen": {"cat": 9, "dog": 9}}, first=500)
    other = data.from_folder(more)

    def tests_of(federation, site):
        rows = federation.clients[federation.client_ids.index(site)].test
        return sorted(federation.test.ids[rows])

    for site in SITES:
        assert tests_of(one, site) == tests_of(other, site)
    assert tests_of(one, "Berlin") != tests_of(data.from_folder(more, test_seed=1), "Berlin")
    assert len(data.from_folder(more, test_fraction=0.5).test) > len(other.test)


def test_given_parts_are_kept(tmp_path):
    make(tmp_path / "train")
    make(tmp_path / "test", {"Lyon": {"dog": 2}, "Porto": {"cat": 1}}, first=100)
    made = data.from_folder(tmp_path)
    assert made.client_ids == ("Berlin", "Lyon", "Oslo", "Porto")
    assert made.class_counts().sum(axis=1).tolist() == [15, 5, 7, 0]
    assert made.test_class_counts().tolist() == [[0, 0, 0], [0, 0, 2], [0, 0, 0], [1, 0, 0]]
    with refuses("test_fraction", "says itself which samples are for testing"):
        data.from_folder(tmp_path, test_fraction=0.3)


def test_other_folders_beside_the_parts_are_refused(tmp_path):
    for part in ("train", "Lyon", "test"):
        make(tmp_path / "a" / part)
    refused(
        tmp_path / "a",
        "holds the folders Lyon, test, train (taken for parts: test, train); the layout is",
    )


def test_sites_whose_names_are_abbreviations_of_parts(tmp_path):
    """Countries by their codes, Turkey among them, and a department."""
    make(tmp_path / "sites", {name: {"cat": 3, "dog": 3} for name in ("DE", "Dev", "FR", "TR")})
    assert data.from_folder(tmp_path / "sites").client_ids == ("DE", "Dev", "FR", "TR")
    # Without other folders, they are parts.
    make(tmp_path / "parts" / "tr")
    make(tmp_path / "parts" / "te", {"Lyon": {"dog": 2}}, first=100)
    assert data.from_folder(tmp_path / "parts").client_ids == ("Berlin", "Lyon", "Oslo")


def test_sites_and_classes_without_samples_are_named(tmp_path, warnings_again):
    make(tmp_path / "train")
    make(tmp_path / "test", {"Porto": {"cat": 2}}, first=100)
    data.from_folder(tmp_path)
    text = warnings_again.text
    assert "site Porto has no training samples" in text
    assert "sites Berlin, Lyon, Oslo have no test samples" in text
    assert "classes deer, dog have no test samples" in text


def test_empty_folders_are_left_out_by_name(tmp_path, warnings_again):
    make(tmp_path)
    (tmp_path / "Paris" / "cat").mkdir(parents=True)
    (tmp_path / "Lyon" / "wolf").mkdir()
    made = data.from_folder(tmp_path)
    assert made.client_ids == ("Berlin", "Lyon", "Oslo")
    assert made.class_names == ("cat", "deer", "dog")
    assert (made.notes["sites_left_out"], made.notes["classes_left_out"]) == (1, 1)
    assert "site Paris left out, without any image" in warnings_again.text
    assert "class wolf left out, without any image" in warnings_again.text


def test_other_files_are_left_out_and_counted(tmp_path, warnings_again):
    make(tmp_path)
    for name in (".DS_Store", "Berlin/cat/Thumbs.db", "Berlin/.hidden/x.png", "Lyon/._cat"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "labels.csv").write_text("")
    (tmp_path / "Berlin" / "cat" / "scan.txt").write_text("")
    made = data.from_folder(tmp_path)
    assert (made.notes["hidden_files"], made.notes["other_files"]) == (4, 2)
    assert "2 files are left out" in warnings_again.text
    assert f"{tmp_path}: folder Berlin/.hidden with images left out, because" in warnings_again.text
    assert "for example Berlin/cat/scan.txt" in warnings_again.text
    assert len(made.train) + len(made.test) == 27


def test_names_are_composed_and_without_superfluous_blanks(tmp_path):
    make(tmp_path, {"Charité": {"cat": 4}, " St.  Mary ": {"dog": 4, "cat": 4}})
    make(tmp_path, {"Charite\u0301": {"dog": 2}}, first=100)
    assert data.from_folder(tmp_path).client_ids == ("Charité", "St. Mary")


def test_numbers_are_in_their_order(tmp_path):
    make(tmp_path, {"a": {"10": 3, "9": 3, "1": 3}})
    assert data.from_folder(tmp_path).class_names == ("1", "9", "10")


def test_the_same_image_elsewhere_is_named(tmp_path, warnings_again):
    make(tmp_path / "train", {"a": {"cat": 4, "dog": 4}, "b": {"cat": 4}})
    make(tmp_path / "test", {"a": {"cat": 2}}, first=100)
    write(tmp_path / "train" / "b" / "cat" / "same.png", noise(0, 8, 8, 3))
    write(tmp_path / "train" / "b" / "cat" / "same2.png", noise(1, 8, 8, 3))
    write(tmp_path / "test" / "a" / "cat" / "same.png", noise(5, 8, 8, 3))
    made = data.from_folder(tmp_path)
    assert made.notes["duplicates_at_several_sites"] == 2
    assert made.notes["duplicates_in_both_parts"] == 1
    assert made.notes["duplicates_of_several_classes"] == 1
    text = warnings_again.text
    assert "2 samples occur at several sites, for example train/a/cat/00" in text
    assert "and train/b/cat/same" in text
    assert "1 sample occurs in the training and the test part, for example " in text
    assert "test/a/cat/same.png" in text


def test_nothing_is_said_about_images_that_are_all_different(tmp_path, warnings_again):
    made = data.from_folder(make(tmp_path, {"a": {"x": 8, "y": 8}, "b": {"x": 8, "y": 8}}))
    assert made.notes == {}
    assert warnings_again.text == ""


def test_grey_and_color_images_get_one_number_of_channels(tmp_path, warnings_again):
    make(tmp_path, {"a": {"cat": 4}}, shape=(8, 8))
    assert data.from_folder(make(tmp_path / "g", shape=(8, 8))).input_spec.shape == (8, 8, 1)
    make(tmp_path / "m", {"a": {"cat": 4}}, shape=(8, 8))
    mixed = data.from_folder(make(tmp_path / "m", {"a": {"dog": 4}}, first=50))
    assert mixed.input_spec.shape == (8, 8, 3)
    assert "4 of 8 images are grey; all are read as color images with 3" in warnings_again.text
    grey = mixed.train.x[mixed.train.y == 0]
    assert (grey == grey[..., :1]).all()
    assert data.from_folder(tmp_path / "m", image_channels=1).train.x.shape == (6, 8, 8, 1)
    with refuses("image_channels", "choose 1"):
        data.from_folder(tmp_path / "m", image_channels=2)
    with refuses("input_normalization", "needs color images"):
        data.from_folder(tmp_path / "g", input_normalization="imagenet")


def test_images_of_different_sizes_need_a_size(tmp_path):
    make(tmp_path, {"a": {"cat": 3, "dog": 3}})
    make(tmp_path, {"b": {"cat": 3}}, shape=(12, 20, 3), first=50)
    with refuses("image_size", "2 sizes, from 8×8 to 20×12 pixels; choose one such as 8"):
        data.from_folder(tmp_path)
    made = data.from_folder(tmp_path, image_size=10)
    assert made.train.x.shape[1:] == (10, 10, 3)
    # As many pixels, upright and across.
    make(tmp_path / "turned", {"a": {"cat": 3}}, shape=(6, 8, 3))
    make(tmp_path / "turned", {"a": {"dog": 3}}, shape=(8, 6, 3), first=50)
    with refuses("image_size", "2 sizes, from 8×6 to 6×8 pixels; choose one such as 6"):
        data.from_folder(tmp_path / "turned")
    make(tmp_path / "wide", {"a": {"cat": 3, "dog": 3}}, shape=(6, 10, 3))
    assert data.from_folder(tmp_path / "wide").input_spec.shape == (6, 10, 3)
    make(tmp_path / "huge", {"a": {"cat": 1, "dog": 2}}, shape=(4, 600, 3))
    with refuses("image_size", "images have 600×4 pixels"):
        data.from_folder(tmp_path / "huge")


def test_the_fingerprint_is_that_of_the_contents(tmp_path):
    made = data.from_folder(make(tmp_path / "a"))
    assert data.from_folder(make(tmp_path / "b")).fingerprint == made.fingerprint
    write(tmp_path / "b" / "Lyon" / "cat" / "015.png", noise(999, 8, 8, 3))
    assert data.from_folder(tmp_path / "b").fingerprint != made.fingerprint
    (tmp_path / "a" / "Oslo" / "deer").rename(tmp_path / "a" / "Oslo" / "elk")
    assert data.from_folder(tmp_path / "a").fingerprint != made.fingerprint


def test_other_layouts_are_refused(tmp_path):
    layout = "the layout is site/class/image"
    (tmp_path / "empty").mkdir()
    refused(
        tmp_path / "empty", "there are no images, JPEG, PNG, TIFF, WebP, BMP, GIF or DICOM", layout
    )
    make(tmp_path / "flat", {"cat": {"": 2}, "dog": {"": 2}})
    refused(tmp_path / "flat", f"{tmp_path}/flat/cat holds images and no folders of classes")
    make(tmp_path / "deep" / "x")
    refused(tmp_path / "deep", "x/Berlin/cat is a folder in a class's folder", layout)
    make(tmp_path / "half" / "train")
    refused(tmp_path / "half", "holds the folders train (taken for parts: train);", layout)
    make(tmp_path / "one", {"a": {"cat": 4}})
    refused(tmp_path / "one", "holds only the class cat; at least two classes are needed")
    make(tmp_path / "untested", {"a": {"cat": 1, "dog": 1}})
    refused(tmp_path / "untested", "there are no test samples")


def test_files_that_are_not_images_are_named(tmp_path):
    root = make(tmp_path)
    (root / "Lyon" / "cat" / "015.png").write_bytes(b"no image")
    refused(root, "Lyon/cat/015.png: not a JPEG, PNG, TIFF, WebP, BMP, GIF or DICOM image")
    (root / "Oslo" / "dog" / "x.jpg").write_bytes(b"no image")
    refused(
        root, "Lyon/cat/015.png and 1 more: not a JPEG, PNG, TIFF, WebP, BMP, GIF or DICOM image"
    )


def test_huge_images_are_refused_by_their_header(tmp_path):
    path = make(tmp_path) / "Lyon" / "cat" / "015.png"
    content = bytearray(path.read_bytes())
    content[16:24] = (100_000).to_bytes(4, "big") * 2
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    path.write_bytes(content)
    refused(tmp_path, "015.png: has", "more", "than max_image_pixels=5000")
    refused(tmp_path, "has 8×8 pixels, more than max_image_pixels=60 allows", max_image_pixels=60)


def test_links_stay_in_the_directory(tmp_path):
    root, outside = make(tmp_path / "data"), make(tmp_path / "outside")
    (root / "Lyon" / "dog").symlink_to(outside / "Berlin" / "dog")
    refused(root, "Lyon/dog is a link to a folder outside of")
    (root / "Lyon" / "dog").unlink()
    (root / "Lyon" / "cat" / "x.png").symlink_to(outside / "Berlin" / "cat" / "000.png")
    refused(root, "x.png is a link to a file outside of")
    (root / "Lyon" / "cat" / "x.png").unlink()
    (root / "Lyon" / "cat" / "x.png").symlink_to(root / "nowhere.png")
    refused(root, "x.png' cannot be read")
    (root / "Lyon" / "cat" / "x.png").unlink()
    os.mkfifo(root / "Lyon" / "cat" / "x.png")
    refused(root, "x.png is not a regular file")


def test_links_that_lead_to_themselves_are_named(tmp_path):
    root = make(tmp_path)
    for name in ("Paris", "Lyon/fox", "Lyon/cat/x.png"):
        (root / name).symlink_to(root / name)
        refused(root, f"{name} cannot be read: Too many levels of symbolic links")
        (root / name).unlink()


def test_file_names_need_not_be_unicode_but_names_of_sites_do(tmp_path):
    root = make(tmp_path)
    path = root / "Lyon" / "cat"
    os.rename(path / "015.png", os.fsencode(path) + b"/\xff.png")
    made = data.from_folder(root)
    assert any("udcff" in name for name in [*made.train.ids, *made.test.ids])
    os.rename(path, os.fsencode(root) + b"/Lyon/\xff")
    refused(root, "the name of the folder", "is not Unicode")
    os.rename(os.fsencode(root) + b"/Lyon/\xff", path)
    (root / "Lyon").rename(root / "Ly\non\x07")
    refused(root, "has characters that cannot be shown")


def test_some_sites_and_other_partitions(tmp_path):
    root = make(tmp_path, {name: {"cat": 5, "dog": 5} for name in "abcdef"})
    some = data.load_federation("folder", "natural", 2, data_dir=str(root))
    assert some.num_clients == 2
    assert (len(some.train), len(some.test)) == (16, 4)
    assert len(some.test.ids) == 4
    pooled = data.load_federation("folder", "class", 4, data_dir=str(root), classes_per_client=1)
    assert (pooled.class_counts() > 0).sum(axis=1).tolist() == [1, 1, 1, 1]
    with refuses("classes_per_client", "only 2 classes"):
        data.load_federation("folder", "class", 4, data_dir=str(root), classes_per_client=3)


def test_a_missing_folder_is_refused_by_name(tmp_path):
    source = sources.create("folder", data_dir=str(tmp_path / "no"))
    for call in (source.check, lambda: source.load(LoadRequest())):
        with pytest.raises(DataError, match=f"data_dir={tmp_path}/no is not a directory"):
            call()


def test_sites_that_lose_all_samples_are_named(tmp_path, warnings_again):
    root = make(tmp_path, {"a": {"x": 30, "y": 30}, "b": {"x": 1, "y": 1}})
    kept = data.load_federation(
        "folder", "natural", data_dir=str(root), max_train_samples=2, max_test_samples=2
    )
    assert kept.client_ids == ("a",)
    assert "folder: client b left out, without any sample" in warnings_again.text


def test_results_do_not_lie_among_the_images(tmp_path):
    root = make(tmp_path / "data")
    config = ExperimentConfig.from_settings(dataset="folder", data_dir=str(root))
    for place in (root, root / "run", root / "a" / ".." / "run"):
        with refuses("output_dir", "lies in the folder of the data set folder"):
            check_directory(place, config, overwrite=False)
    check_directory(tmp_path / "run", config, overwrite=False)


# Kinds of files.


def test_images_of_16_bits_keep_their_range(tmp_path, warnings_again):
    """X-rays of 12 bits, of which the upper 8 bits of 16 would be the constant 3."""
    generator, pixels = np.random.default_rng(1), {}
    for site in "ab":
        for label in ("ill", "well"):
            for number in range(5):
                values = generator.integers(900, 1012, (6, 5)).astype(np.uint16)
                values[0, :2] = 900, 1011
                path = tmp_path / site / label / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(values).save(path)
                pixels[os.path.relpath(path, tmp_path)] = values
    made = data.from_folder(tmp_path)
    assert made.input_spec.shape == (6, 5, 1)
    assert "900 becomes black and 1011 white" in warnings_again.text
    for x, name in zip(made.train.x, made.train.ids, strict=True):
        expected = (pixels[name].astype(np.float64) - 900) * 255 / 111
        np.testing.assert_allclose(x[..., 0], expected, atol=0.51)
    # Exported models read files in the same way, and no others.
    paths = [tmp_path / name for name in made.train.ids]
    files = tf.constant([path.read_bytes() for path in paths])
    np.testing.assert_allclose(
        inputs.from_image_files(files, made.input_spec),
        data.normalize(made.train.x, made.input_spec),
        atol=1e-5,
    )
    shallow = tf.io.encode_png(np.zeros((6, 5, 1), np.uint8))[None]
    with pytest.raises(tf.errors.InvalidArgumentError, match="not a PNG image of 16 bits"):
        inputs.from_image_files(shallow, made.input_spec)
    other = data.from_folder(tmp_path, image_range="0,4095")
    scaled = [float(pixels[name].max()) * 255 / 4095 for name in other.train.ids]
    np.testing.assert_allclose([x.max() for x in other.train.x], scaled, atol=0.51)
    for text in ("4095", "5,1", "0,70000", "a,b"):
        with refuses("image_range", "must be LOW,HIGH"):
            data.from_folder(tmp_path, image_range=text)


def test_color_images_of_16_bits(tmp_path):
    generator = np.random.default_rng(1)
    for number in range(8):
        values = generator.integers(0, 2**16, (4, 4, 3)).astype(np.uint16)
        values[0, 0] = 0
        values[0, 1] = 2**16 - 1
        path = tmp_path / "deep" / "a" / "xy"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tf.io.encode_png(values).numpy())
    made = data.from_folder(tmp_path / "deep")
    assert made.input_spec.pixel_range == (0, 2**16 - 1)
    path = tmp_path / "deep" / made.train.ids[0]
    expected = tf.io.decode_png(path.read_bytes(), dtype=tf.uint16).numpy() / 257
    np.testing.assert_allclose(made.train.x[0], expected, atol=0.51)
    with refuses("image_range", "have 8 bits"):
        data.from_folder(make(tmp_path / "other"), image_range="0,9")
    write(tmp_path / "deep" / "a" / "x" / "shallow.png", noise(0, 4, 4, 3))
    refused(
        tmp_path / "deep",
        "8 of 9 images have 16 bits per channel, such as a/x/0.png, the others 8, such as a/x/sh",
        "convert them to one kind",
    )

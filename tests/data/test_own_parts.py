"""Parts of data of your own: groups that stay together, parts that are given, sites left out."""

import re

import numpy as np
import pandas as pd
import pytest

from tests.data.refusals import refuses
from tests.data.test_own_folder import noise, write
from tff_pcdd import data
from tff_pcdd import settings as flat
from tff_pcdd.data import DataConfig, DataError, partitions, sources
from tff_pcdd.data.sources import _users
from tff_pcdd.experiment.config import ExperimentConfig
from tff_pcdd.experiment.planning import training_spec
from tff_pcdd.report import partition
from tff_pcdd.studies.sweeps import check_held_out


@pytest.fixture
def visits():
    """200 visits of 40 patients, each of one hospital and, as a rule, of one diagnosis."""
    generator = np.random.default_rng(7)
    patient = np.sort(generator.integers(0, 40, 200))
    diagnosis = np.array(["ill", "well"], object)[patient % 3 % 2]
    diagnosis[generator.random(200) < 0.1] = "unclear"
    return pd.DataFrame(
        {
            "pulse": generator.normal(70, 9, 200),
            "pressure": generator.normal(120, 9, 200),
            "patient": [f"P{number:02d}" for number in patient],
            "label": diagnosis,
            "site": np.array(["Graz", "Linz", "Wien"])[patient % 3],
        }
    )


def load(table, **options):
    return data.from_dataframe(table, features=["pulse", "pressure"], **options)


def rows_of(federation, indices, part="train"):
    return [int(name.split()[1]) for name in getattr(federation, part).ids[indices]]


def owners(federation, values):
    """The clients and parts that have samples of each value."""
    found = {}
    for client in federation.clients:
        for part, indices, of in (
            ("train", client.train, "train"),
            ("val", client.validation, "train"),
            ("test", client.test, "test"),
        ):
            for row in rows_of(federation, indices, of):
                found.setdefault(values[row], set()).add((client.client_id, part))
    return found


# Groups.


def test_all_rows_of_a_group_are_in_one_part_of_one_site(visits, warnings_again):
    made = load(visits, group_column="patient")
    found = owners(made, visits["patient"].tolist())
    assert all(len(places) == 1 for places in found.values())
    assert len(found) == visits["patient"].nunique()
    assert len(made.train) + len(made.test) == 200
    # A fifth of the samples, up to the size of a group.
    assert abs(len(made.test) - 40) <= visits["patient"].value_counts().max()
    assert set(made.class_names) == {made.class_names[label] for label in np.unique(made.train.y)}
    assert "of the same patient" not in warnings_again.text
    every = data.from_dataframe(visits, features="all", group_column="patient")
    np.testing.assert_array_equal(every.test.x, made.test.x)


def test_the_choice_of_a_site_does_not_depend_on_other_sites(visits):
    rows = (visits["site"] == "Graz").to_numpy()
    alone = load(visits[rows].reset_index(drop=True), group_column="patient")
    of_all = load(visits, group_column="patient")
    tested = visits["pulse"][rows].to_numpy(np.float32)
    graz = of_all.test.x[of_all.clients[0].test, 0]
    assert set(graz) == set(alone.test.x[:, 0]) <= set(tested)
    other = load(visits, group_column="patient", test_seed=1)
    assert set(other.test.x[other.clients[0].test, 0]) != set(graz)


@pytest.mark.parametrize("name", ["sequence_id", "burst", "Sequence"])
def test_sequences_of_images_look_like_groups(name, visits, warnings_again):
    load(visits.rename(columns={"patient": name}))
    assert f"group_column={name} keeps them in one part" in warnings_again.text


def test_parts_that_share_what_looks_like_patients_are_warned_of(visits, warnings_again):
    made = load(visits)
    found = owners(made, visits["patient"].tolist())
    shared = sum(len(places) > 1 for places in found.values())
    text = warnings_again.text
    assert (
        f"{shared} of {len(found)} values of column 'patient' have samples in the training and"
        in text
    )
    assert "group_column=patient keeps them in one part" in text
    warnings_again.clear()
    split = np.where(np.arange(200) % 2, "train", "test")
    load(visits.assign(split=split))
    assert "group_column=patient with split_column=none keeps" in warnings_again.text


@pytest.mark.parametrize(
    "name",
    [
        *("PatientID", "lesion_id", "subject", "Study No", "video", "case-number", "ID"),
        # Of hospitals in Germany, Austria and Switzerland.
        *("Pat.-Nr.", "PatNr", "Patienten-ID", "Patientennummer"),
    ],
)
def test_names_of_such_columns(name, visits, warnings_again):
    load(visits.rename(columns={"patient": name}))
    assert f"values of column {name!r}" in warnings_again.text


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("patient", np.arange(200)),
        ("patient", np.arange(200) % 4),
        ("patient", [None] * 200),
        ("age", np.arange(200) % 50),
        ("valid", np.arange(200) % 50),
        ("studying", np.arange(200) % 50),
        ("path", np.arange(200) % 50),
        ("pat", np.arange(200) % 50),
    ],
)
def test_other_columns_are_not_warned_of(name, values, visits, warnings_again):
    load(visits.drop(columns="patient").assign(**{name: values}))
    assert "of the same patient" not in warnings_again.text


def test_a_group_at_two_sites_is_refused(visits):
    visits["patient"] = visits["patient"].where(visits["site"] != "Wien", "P00")
    with pytest.raises(DataError) as caught:
        load(visits, group_column="patient")
    message = str(caught.value)
    place = r"the group 'P00' has samples at the sites Graz and Wien, row (\d+) and row (\d+);"
    rows = visits.loc[list(map(int, re.search(place, message).groups()))]
    assert rows["site"].tolist() == ["Graz", "Wien"]
    assert set(rows["patient"]) == {"P00"}
    assert "; if each site numbers its own, group_column=site,patient makes the site " in message
    made = load(visits, group_column="site,patient")
    assert len(made.train) + len(made.test) == 200


def test_the_flag_that_is_named_keeps_patients_of_files_apart(visits, tmp_path):
    """Each file is a site, and its hospital numbers its patients from 0."""
    for site, rows in visits.drop(columns="patient").groupby("site"):
        rows = rows.assign(**{"no., anew": np.arange(len(rows)) // 3})
        rows.drop(columns="site").to_csv(tmp_path / f"{site}.csv", index=False)
    settings = {"dataset": "table", "data_dir": str(tmp_path), "feature_columns": "pulse,pressure"}
    settings["group_column"] = '"no., anew"'
    with pytest.raises(DataError) as caught:
        flat.build(DataConfig, settings).build()
    assert 'numbers its own, group_column=site,"no., anew" makes the site' in str(caught.value)
    made = flat.build(DataConfig, {**settings, "group_column": 'site,"no., anew"'}).build()
    assert sum(client.train.size + client.test.size for client in made.clients) == 200


def test_a_group_in_two_given_parts_is_refused(visits):
    visits["split"] = ["train", "test"] * 100
    with pytest.raises(DataError, match=r"in the parts test and train.*let the test samples be"):
        load(visits, group_column="patient")
    made = load(visits, group_column="patient", split_column="none")
    assert all(len(p) == 1 for p in owners(made, visits["patient"].tolist()).values())


def test_groups_that_are_missing_are_refused_or_dropped(visits):
    visits["patient"] = visits["patient"].astype(object)
    visits.loc[[3, 9], "patient"] = None
    with pytest.raises(DataError, match=r"row 3: the group's patient is missing"):
        load(visits, group_column="patient")
    made = load(visits, group_column="patient", missing="drop")
    assert len(made.train) + len(made.test) == 198


def built(table, path, partition, settings):
    table.to_csv(path, index=False)
    values = {"dataset": "table", "data_dir": str(path), "feature_columns": "pulse,pressure"}
    return flat.build(DataConfig, {**values, "partition": partition, **settings}).build()


@pytest.mark.parametrize("partition", ["natural", "iid", "dirichlet", "class"])
def test_validation_samples_and_other_partitions_keep_groups_together(partition, visits, tmp_path):
    clients = {} if partition == "natural" else {"num_clients": 3}
    if partition == "class":
        clients["classes_per_client"] = 2
    settings = {"group_column": "patient", "validation_fraction": 0.3, **clients}
    made = built(visits, tmp_path / "a.csv", partition, settings)
    values = dict(zip(range(2, 202), visits["patient"].tolist(), strict=True))
    found = owners(made, values)
    assert all(len(places) == 1 for places in found.values())
    assert len(found) == visits["patient"].nunique()
    assert sum(client.validation.size for client in made.clients) > 20


def test_arrays_and_their_files_have_groups_too(visits, tmp_path):
    x = visits[["pulse", "pressure"]].to_numpy()
    label, site, groups = (visits[name].to_numpy(str) for name in ("label", "site", "patient"))
    made = data.from_arrays(x, label, site, groups=groups)
    assert all(len(places) == 1 for places in owners(made, groups).values())
    np.savez(tmp_path / "a.npz", x=x, y=label, site=site, group=groups)
    of_file = data.load_federation("npz", "natural", data_dir=str(tmp_path / "a.npz"))
    np.testing.assert_array_equal(of_file.test.x, made.test.x)
    with pytest.raises(DataError, match=r"the groups have shape \(3,\), not \(200,\)"):
        data.from_arrays(x, label, site, groups=[1, 2, 3])


def frames(root, sites=("north", "south"), videos=4, count=5):
    """Frames of videos: SITE/CLASS/video7_03.png."""
    number = 0
    for site in sites:
        for label in ("calm", "storm"):
            for _ in range(videos):
                for frame in range(count):
                    name = f"video{number // count}_{frame:02d}.png"
                    write(root / site / label / name, noise(number, 4, 4, 3))
                    number += 1
    return root


def test_folders_name_groups_by_a_pattern(tmp_path, warnings_again):
    root = frames(tmp_path)
    data.from_folder(root)
    assert "of 16 beginnings of file names have samples in the training and" in warnings_again.text
    advice = r"group_pattern='([^/]+)[_-][0-9]+\.[A-Za-z]+$' keeps them in one part"
    assert advice in warnings_again.text
    for pattern in (r"([^/]+)[_-][0-9]+\.[A-Za-z]+$", r"video\d+"):
        made = data.from_folder(root, group_pattern=pattern)
        found = {}
        for part in ("train", "test"):
            for name in getattr(made, part).ids:
                found.setdefault(name.split("/")[-1].split("_")[0], set()).add(part)
        assert len(found) == 16
        assert all(len(parts) == 1 for parts in found.values())
    with pytest.raises(DataError, match=r"group_pattern does not match north/calm/video0_00.png"):
        data.from_folder(root, group_pattern="patient(.)")
    with refuses("group_pattern", "is not a regular expression: "):
        data.from_folder(root, group_pattern="(")


def test_names_that_only_count_images_are_no_groups(tmp_path, warnings_again):
    for number, (site, label) in enumerate([(s, c) for s in "abc" for c in "xy"] * 5):
        name = f"IMG_{number:04d}.png" if site == "a" else f"{site}_{label}_{number}.png"
        write(tmp_path / site / label / name, noise(number, 4, 4, 3))
    data.from_folder(tmp_path)
    assert "beginnings" not in warnings_again.text


# Parts that are given.


def test_validation_samples_of_ones_own_are_used_as_such(visits, tmp_path):
    parts = np.array(["Train", "train", "VAL", "test"])[np.arange(200) % 4]
    made = built(visits.assign(split=parts), tmp_path / "a.csv", "natural", {})
    for part, wanted in (("train", {0, 1}), ("validation", {2}), ("test", {3})):
        of = "test" if part == "test" else "train"
        found = [
            row - 2 for client in made.clients for row in rows_of(made, getattr(client, part), of)
        ]
        assert {row % 4 for row in found} == wanted
        assert len(found) == 50 * len(wanted)
    # The statistics are those of the training samples only.
    train = visits[["pulse", "pressure"]].to_numpy(np.float32)[np.arange(200) % 4 < 2]
    np.testing.assert_allclose(made.input_spec.mean, train.mean(axis=0), rtol=1e-4)
    with refuses("validation_fraction", "table has validation samples of its own"):
        built(
            visits.assign(split=parts), tmp_path / "a.csv", "natural", {"validation_fraction": 0.1}
        )
    iid = built(visits.assign(split=parts), tmp_path / "a.csv", "iid", {"num_clients": 4})
    held = np.concatenate([client.validation for client in iid.clients])
    assert {(row - 2) % 4 for row in rows_of(iid, held)} == {2}
    assert len(held) == 50


def test_a_registered_federation_keeps_its_validation_samples(visits, own_components):
    parts = np.array(["train", "train", "val", "test"])[np.arange(200) % 4]
    made = data.from_dataframe(
        visits.assign(split=parts), features=["pulse"], name="registered_visits"
    )
    data.register_federation(made)
    loaded = data.load_federation("registered_visits", "natural")
    for one, other in zip(made.clients, loaded.clients, strict=True):
        np.testing.assert_array_equal(one.validation, other.validation)
        np.testing.assert_array_equal(one.train, other.train)
    assert sources.create("registered_visits").may_hold_out


@pytest.mark.parametrize(
    ("kind", "shape", "model"),
    [("text", (5,), "lstm"), ("vector", (5,), "mlp"), ("image", (5, 5, 1), "simple_cnn")],
)
def test_a_registered_federation_suggests_a_backbone_for_its_inputs(
    kind, shape, model, own_components
):
    dtype, vocabulary = "float32" if kind == "vector" else "uint8", "ab" if kind == "text" else None
    spec = data.InputSpec(kind, shape, dtype, vocabulary=vocabulary)
    samples = data.Examples(np.zeros((4, *shape), dtype), np.arange(4, dtype=np.int32) % 2)
    clients = [data.ClientIndices(name, np.arange(4), np.arange(4)) for name in "ab"]
    made = data.Federation(f"own_{kind}", 2, ("x", "y"), spec, samples, samples, clients)
    data.register_federation(made)
    config = ExperimentConfig.from_settings(dataset=made.name)
    assert config.model.backbone.name == model


def test_split_column_none_chooses_test_samples_anew(visits):
    marked = visits.assign(split=["train", "test"] * 100)
    made = load(marked, split_column="none")
    np.testing.assert_array_equal(made.test.x, load(visits).test.x)
    # Nor is it an input then.
    marked = marked.drop(columns="patient")
    every = data.from_dataframe(marked, features="all", split_column="none")
    assert every.input_spec.shape == (2,)


# Sites.


def test_small_sites_are_left_out_by_name(visits, warnings_again):
    visits.loc[[0, 5, 9], "site"] = "Bregenz"
    visits.loc[[20, 21], "site"] = "Eisenstadt"
    made = load(visits, min_site_samples=4)
    assert made.client_ids == ("Graz", "Linz", "Wien")
    assert len(made.train) + len(made.test) == 195
    assert made.notes["small_sites_left_out"] == 2
    text = "sites Bregenz, Eisenstadt left out, with fewer than 4 samples each, 5 together"
    assert text in warnings_again.text
    kept = {*rows_of(made, slice(None)), *rows_of(made, slice(None), "test")}
    assert kept.isdisjoint({0, 5, 9, 20, 21})
    assert load(visits, min_site_samples=3).num_clients == 4
    with pytest.raises(DataError, match="no site has min_site_samples=500 samples"):
        load(visits, min_site_samples=500)
    with refuses("min_site_samples", "must be at least 1"):
        load(visits, min_site_samples=0)


def test_small_sites_are_joined_into_one(visits, warnings_again):
    visits.loc[[0, 5, 9], "site"] = "Bregenz"
    visits.loc[[20, 21], "site"] = "Eisenstadt"
    options = {"min_site_samples": 4, "small_sites": "join"}
    made = load(visits, **options)
    assert made.client_ids == ("Graz", "Linz", "Wien", "small sites")
    assert len(made.train) + len(made.test) == 200
    joined = {*rows_of(made, made.clients[3].train), *rows_of(made, made.clients[3].test, "test")}
    assert joined == {0, 5, 9, 20, 21}
    text = "Bregenz, Eisenstadt, with fewer than 4 samples each, 5 together, are joined into the"
    assert text in warnings_again.text
    assert "- 2 small sites joined" in partition.summarize("own", made)
    # Together they have too few.
    assert load(visits, **{**options, "min_site_samples": 6}).notes["small_sites_left_out"] == 2
    # All are small.
    everyone = load(visits, **{**options, "min_site_samples": 150})
    assert everyone.client_ids == ("small sites",)
    with refuses("small_sites", "needs min_site_samples"):
        load(visits, small_sites="join")
    with refuses("small_sites", "has a site 'small sites' already"):
        load(visits.assign(site=visits["site"].replace("Wien", "small sites")), **options)


def test_what_replaces_missing_values_comes_from_the_training_part_alone(visits, warnings_again):
    """Not from validation samples, nor from sites that are left out."""
    generator = np.random.default_rng(2)
    visits["ward"] = np.array(["A", "B", "C"])[generator.integers(0, 3, 200)]
    number = visits["patient"].str[1:].astype(int)
    visits["split"] = np.select([number % 5 == 3, number % 5 == 4], ["val", "test"], "train")
    visits.loc[visits["split"] == "val", "pulse"] += 1000
    visits.loc[::7, "pulse"] = np.nan
    # A small site; its patient is also at another one.
    visits.loc[[0, 1], ["site", "ward", "pulse"]] = ["Bregenz", "E", 5000.0]
    only_val = int(visits.index[visits["split"] == "val"][0])
    visits.loc[only_val, "ward"] = "D"
    made = data.from_dataframe(
        visits,
        features=["pulse", "ward"],
        categorical_columns="ward",
        impute="mean",
        group_column="patient",
        min_site_samples=3,
    )
    kept = visits.drop([0, 1])
    train = kept[kept["split"] == "train"]
    expected = pd.DataFrame(
        {
            "pulse": kept["pulse"].fillna(train["pulse"].mean()),
            "pulse is missing": kept["pulse"].isna(),
            **{f"ward = {ward}": kept["ward"] == ward for ward in "ABC"},
        }
    )
    assert data.encoding.features(made.input_spec.columns) == list(expected)
    for part, names in (("train", ("train", "val")), ("test", ("test",))):
        rows = rows_of(made, slice(None), part)
        assert sorted(rows) == sorted(kept.index[kept["split"].isin(names)])
        found = expected.loc[rows].astype(np.float64).to_numpy()
        np.testing.assert_allclose(getattr(made, part).x, found, rtol=1e-6)
    text = "1 validation or test samples have categories of column 'ward' that no training sample"
    assert f"{text} has, such as 'D' in row {only_val}; they are" in warnings_again.text


def test_classes_keep_their_numbers_without_their_small_site(visits):
    x, names = visits[["pulse", "pressure"]].to_numpy(), ["well", "unclear", "ill", "none"]
    labels = visits["label"].map(names.index).to_numpy()
    sites = np.where(visits["label"] == "unclear", "Bregenz", visits["site"])
    options = {"class_names": names, "min_site_samples": int((labels == 1).sum()) + 1}
    made = data.from_arrays(x, labels, sites, groups=[*range(200)], **options)
    assert made.class_names == tuple(names)
    for part in (made.train, made.test):
        rows = [int(name.removeprefix("sample ")) for name in part.ids]
        assert part.y.tolist() == labels[rows].tolist()
        assert 1 not in part.y


def test_data_without_sites_need_a_partition(visits, tmp_path):
    visits = visits.drop(columns="site")
    made = built(visits, tmp_path / "a.csv", "iid", {"num_clients": 4, "site_column": "none"})
    assert made.num_clients == 4
    with refuses("partition", "no sites; choose one of class, dirichlet, iid, quantity, shards"):
        built(visits, tmp_path / "a.csv", "natural", {"site_column": "none"})
    with refuses("min_site_samples", "has no sites"):
        built(visits, tmp_path / "a.csv", "iid", {"site_column": "none", "min_site_samples": 2})
    source = sources.create("table", data_dir="a.csv", site_column="none")
    assert source.suggested_partition() == {}
    assert not source.has_users
    assert partitions.get("natural").keeps_users


# What needs validation samples.


def test_sweeps_and_early_stopping_see_validation_samples_of_ones_own(visits, tmp_path):
    """Whether there are some is known once the data are loaded."""
    path = tmp_path / "a.csv"
    values = {
        "dataset": "table",
        "data_dir": str(path),
        "feature_columns": "pulse,pressure",
        "early_stopping_patience": 3,
        "local_epochs": 1,
    }
    config = ExperimentConfig.from_settings(**values)
    visits.assign(split=["train", "val", "test", "train"] * 50).to_csv(path, index=False)
    assert training_spec(config, config.data.build()).validation
    check_held_out([config.data], load=True)
    visits.to_csv(path, index=False)
    with refuses("early_stopping_patience", "needs held-out samples, and table has none"):
        training_spec(config, config.data.build())
    check_held_out([config.data])
    with refuses("validation_fraction", "a sweep chooses on held-out samples"):
        check_held_out([config.data], load=True)


# Validation samples of the data set's own, and partitions.


@pytest.fixture
def arrays_with_parts(tmp_path):
    """600 training, 200 validation and 200 test samples of nine classes, in any order."""
    generator = np.random.default_rng(5)
    part = generator.permutation(np.repeat(["train", "val", "test"], [600, 200, 200]))
    np.savez(
        tmp_path / "a.npz",
        x=generator.normal(size=(1000, 4)),
        y=np.arange(1000) % 9,
        site=np.repeat("one", 1000),
        split=part,
    )
    return tmp_path / "a.npz"


def divided(path, partition="class", **options):
    settings = {"dataset": "npz", "data_dir": str(path), "partition": partition, **options}
    return flat.build(DataConfig, settings).build()


def classes_of(federation, indices):
    return {*federation.train.y[indices].tolist()}


def test_clients_hold_the_classes_of_what_they_train_on(arrays_with_parts):
    found = divided(arrays_with_parts, num_clients=18, classes_per_client=2)
    clients = found.clients
    assert sum(client.train.size for client in clients) == 600
    # Each sample for validation is at one client.
    held = np.concatenate([client.validation for client in clients])
    assert len(held) == len({*held.tolist()}) == 200
    for client in clients:
        own = classes_of(found, client.train)
        assert len(own) == 2
        assert classes_of(found, client.validation) <= own
        assert {*found.test.y[client.test].tolist()} <= own


@pytest.mark.parametrize("local_test", ["disjoint", "overlapping"])
def test_min_samples_are_those_to_train_on(local_test, arrays_with_parts):
    found = divided(
        arrays_with_parts,
        "dirichlet",
        num_clients=8,
        concentration=0.3,
        min_samples=12,
        local_test=local_test,
    )
    assert min(client.train.size for client in found.clients) >= 12
    held = np.concatenate([client.validation for client in found.clients])
    assert len(held) == len({*held.tolist()}) == 200
    for client in found.clients:
        assert classes_of(found, client.validation) <= classes_of(found, client.train)


def test_tails_and_limits_are_of_samples_to_train_on(arrays_with_parts):
    def counts(**options):
        found = divided(arrays_with_parts, "iid", num_clients=2, **options)
        train = np.concatenate([client.train for client in found.clients])
        held = np.concatenate([client.validation for client in found.clients])
        return np.bincount(found.train.y[train], minlength=9), len(held)

    full, _ = counts()
    sizes, held = counts(max_train_samples=45)
    assert (sizes.sum(), held) == (45, 200)
    assert np.abs(sizes - 45 * full / 600).max() < 1
    sizes, held = counts(imbalance_factor=10)
    ordered = np.sort(sizes)[::-1]
    assert held == 200
    assert np.abs(ordered - ordered[0] * 10.0 ** (-np.arange(9) / 8)).max() <= 1


def test_too_few_groups_are_called_groups(visits):
    federation = load(visits, group_column="patient")
    pooled = sources.PooledData(
        federation.train, federation.test, federation.class_names, federation.input_spec
    )
    partition_of = partitions.create("iid", num_clients=100)
    with refuses("num_clients", "whole groups are divided, and count as one sample each"):
        partition_of.divide(pooled, 0)


def test_shared_samples_are_kept_once():
    """Of clients of a federation of one's own, which may have samples in common."""
    rows = [np.array([1, 2, 5]), np.array([5, 7, 1])]
    examples = data.Examples(np.arange(9.0)[:, None], np.arange(9) % 3)
    kept, own = _users._gather(examples, rows)
    assert kept.x[:, 0].tolist() == [1, 2, 5, 7]
    assert [kept.x[indices, 0].tolist() for indices in own] == [[1, 2, 5], [5, 7, 1]]

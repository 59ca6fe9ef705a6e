"""Sets of image files that a list names: Fed-ISIC2019, ImageNet-LT, iNaturalist-User.

Examples hold paths; `preprocessing.normalize` and `augment` read and decode them batch by batch. A
missing file is named here, a broken one when its batch is read.
"""

from __future__ import annotations

import csv
import os
import pathlib

import numpy as np

from tff_pcdd.data.errors import DataError
from tff_pcdd.data.federation import IMAGE_FILE, ClientIndices, Examples
from tff_pcdd.data.sources import IMAGENET, DatasetInfo, Source, image_spec, register_source

_SUFFIXES = (".jpg", ".jpeg", ".png")


def _info(name, num_classes, size, resize, has_users):
    mean, std = IMAGENET
    return DatasetInfo(
        name,
        IMAGE_FILE,
        num_classes,
        (size, size, 3),
        has_users=has_users,
        needs_data_dir=True,
        mean=mean,
        std=std,
        flip=True,
        resize=resize,
    )


@register_source(_info("fed_isic2019", 8, 200, 224, has_users=True))
def _load_fed_isic2019(info, options):
    """Skin lesions of six centres in FLamby's layout (Ogier du Terrail et al., NeurIPS 2022).

    The directory holds FLamby's table `train_test_split` and the folder of its prepared images. The
    six centres are the clients, or parts of centres with the option `split_centres`.
    """
    root = _directory(info, options)
    table = _first(root, ("train_test_split", "train_test_split.csv", "train_test_folds.csv"))
    folder = _first(root, ("ISIC_2019_Training_Input_preprocessed", "ISIC_2019_Training_Input"))
    rows = _read_table(table, ("image", "target", "center", "fold"))
    folds = np.array([row["fold"] for row in rows])
    if unknown := sorted(set(folds) - {"train", "test"}):
        raise DataError(f"{table}: fold {unknown[0]!r} is neither train nor test")
    labels = _labels([row["target"] for row in rows], info, table)
    paths = _existing(folder, [row["image"] + ".jpg" for row in rows], table)
    centres = [row["center"] for row in rows]
    train, test = np.flatnonzero(folds == "train"), np.flatnonzero(folds == "test")
    clients = _by_user([centres[i] for i in train], [centres[i] for i in test])
    if options.split_centres is not None:
        clients = split_centres(clients, options.split_centres, options.seed)
    train, test, clients = _choose(
        Examples(paths[train], labels[train]), Examples(paths[test], labels[test]), clients, options
    )
    return Source(
        train,
        test,
        class_names=("MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC"),
        input_spec=image_spec(info, options),
        users=clients,
    )


@register_source(_info("imagenet_lt", 1000, 224, 256, has_users=False))
def _load_imagenet_lt(info, options):
    """ImageNet-LT (Liu et al., CVPR 2019): lists of `path label` beside the images of ImageNet.

    The test list is the balanced validation set of ImageNet; the list `val` is not used.
    """
    root = _directory(info, options)
    parts = []
    for split in ("train", "test"):
        table = _first(root, (f"ImageNet_LT_{split}.txt",))
        lines = [line.rsplit(maxsplit=1) for line in _text(table).splitlines() if line.strip()]
        for number, words in enumerate(lines, 1):
            if len(words) != 2:
                raise DataError(f"{table}: line {number} is not `path label`")
        if not lines:
            raise DataError(f"{table}: the list is empty")
        labels = _labels([label for _, label in lines], info, table)
        parts.append(Examples(_existing(root, [path for path, _ in lines], table), labels))
    return Source(
        *parts,
        class_names=tuple(map(str, range(info.num_classes))),
        input_spec=image_spec(info, options),
    )


@register_source(_info("inaturalist", 1203, 224, 256, has_users=True))
def _load_inaturalist(info, options):
    """Species photographed by 9,275 users (Hsu, Qi, Brown; ECCV 2020), images of iNaturalist 2017.

    The directory, or a folder `inaturalist-*` in it, holds the authors' tables
    `federated_train*.csv` and `test*.csv` with the columns image_id, class and user_id (or image,
    class and user); images are found by their name anywhere below the directory. The authors' test
    table names no users: then clients have no test part of their own.
    """
    root = _directory(info, options)
    files = {path.stem: path for path in _image_files(root)}
    parts, users = [], []
    for pattern in ("federated_train*.csv", "test*.csv"):
        found = sorted([*root.glob(pattern), *root.glob(f"inaturalist-*/{pattern}")])
        if len(found) != 1:
            raise DataError(f"{root} holds {len(found)} tables {pattern}, one is needed")
        needed = ("image_id", "class") if parts else ("image_id", "class", "user_id")
        rows = _read_table(found[0], needed)
        # An id is a file name without its ending; folder and ending may be given.
        stems = [os.path.basename(row["image_id"]) for row in rows]
        stems = [stem[: -len(".jpg")] if stem.endswith(".jpg") else stem for stem in stems]
        missing = [stem for stem in stems if stem not in files]
        if missing:
            raise DataError(_missing(found[0], missing, f"{root} and the folders in it"))
        paths = np.array([os.fsencode(files[stem]) for stem in stems])
        parts.append(Examples(paths, _labels([row["class"] for row in rows], info, found[0])))
        users.append([row["user_id"] for row in rows if row.get("user_id")])
    if len(users[1]) < len(parts[1]):
        users[1] = []
    train, test, clients = _choose(*parts, _by_user(*users), options)
    return Source(
        train,
        test,
        class_names=tuple(map(str, range(info.num_classes))),
        input_spec=image_spec(info, options),
        users=clients,
    )


def split_centres(clients, number: int, seed: int) -> tuple[ClientIndices, ...]:
    """Divides centres into smaller clients, the largest first, until there are `number` of them.

    Each centre's samples are shuffled and dealt out evenly, so its parts are alike. (FedGELA and
    FedMR use 20 clients made of the six centres of Fed-ISIC2019 without saying how.)

    Args:
        clients: the centres, as `ClientIndices`.
        number: how many clients there shall be, at least as many as centres.
        seed: a non-negative integer.

    Returns:
        Clients named `<centre>-<part>`.

    Raises:
        DataError: if there are more clients than training samples, or fewer than centres.
    """
    sizes = [len(client.train) for client in clients]
    if number < len(clients):
        raise DataError(f"split_centres={number}: there are {len(clients)} centres already")
    if number > sum(sizes):
        raise DataError(
            f"split_centres={number}: {sum(sizes)} training samples cannot be shared by so many"
        )
    pieces = [1] * len(clients)
    for _ in range(number - len(clients)):
        pieces[max(range(len(clients)), key=lambda i: sizes[i] / pieces[i])] += 1
    rng = np.random.default_rng(seed)
    parts = []
    for client, count in zip(clients, pieces, strict=True):
        train, test = (
            np.array_split(rng.permutation(rows), count) for rows in (client.train, client.test)
        )
        parts.extend(
            ClientIndices(f"{client.client_id}-{i}", np.sort(train[i]), np.sort(test[i]))
            for i in range(count)
        )
    return tuple(parts)


def _choose(train, test, clients, options):
    """Keeps `max_clients` of the clients, by the seed, and only the samples that they hold."""
    number = options.max_clients
    if number is None:
        return train, test, clients
    if number > len(clients):
        raise DataError(f"{number} clients wanted: {options.data_dir} has {len(clients)} users")
    rng = np.random.default_rng(options.seed)
    clients = [clients[i] for i in np.sort(rng.choice(len(clients), number, replace=False))]
    train, train_rows = _gather(train, [client.train for client in clients])
    if any(client.test.size for client in clients):
        test, test_rows = _gather(test, [client.test for client in clients])
    else:  # a test set that belongs to nobody stays whole
        test_rows = [client.test for client in clients]
    names = [client.client_id for client in clients]
    return train, test, tuple(map(ClientIndices, names, train_rows, test_rows))


def _gather(examples, rows):
    ends = np.cumsum([len(part) for part in rows])
    return examples.take(np.concatenate(rows)), np.split(np.arange(ends[-1]), ends[:-1])


def _by_user(train_users, test_users) -> tuple[ClientIndices, ...]:
    """A client for every name, in the order of the names."""
    names = np.array([*train_users, *test_users])
    unique, owners = np.unique(names, return_inverse=True)
    parts = []
    for part in (owners[: len(train_users)], owners[len(train_users) :]):
        ends = np.cumsum(np.bincount(part, minlength=len(unique)))
        parts.append(np.split(np.argsort(part, kind="stable"), ends[:-1]))
    return tuple(map(ClientIndices, unique.tolist(), *parts))


def _directory(info, options) -> pathlib.Path:
    root = pathlib.Path(options.data_dir).expanduser()
    if not root.is_dir():
        raise DataError(f"dataset {info.name}: data_dir={root} is not a directory")
    return root


def _first(root, names) -> pathlib.Path:
    for name in names:
        if (root / name).exists():
            return root / name
    raise DataError(f"{root} holds no {' or '.join(names)}")


def _text(path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


# Column names that mean the same.
_ALIASES = {"image": "image_id", "user": "user_id"}


def _read_table(path, needed) -> list[dict[str, str]]:
    """Rows of a csv file with at least the `needed` columns."""
    reader = csv.DictReader(_text(path).splitlines())
    columns = reader.fieldnames or []
    renamed = [name if name in needed else _ALIASES.get(name, name) for name in columns]
    missing = [name for name in needed if name not in renamed]
    if missing:
        raise DataError(f"{path}: column {missing[0]!r} is missing, there are {', '.join(columns)}")
    reader.fieldnames = renamed
    rows = list(reader)
    if not rows:
        raise DataError(f"{path}: the table is empty")
    for number, row in enumerate(rows, 2):
        if any(not row[name] for name in needed):
            raise DataError(f"{path}: line {number} lacks a value")
    return rows


def _labels(texts, info, path) -> np.ndarray:
    try:
        labels = np.array(texts, np.float64)
    except ValueError as error:
        raise DataError(f"{path}: a label is not a number: {error}") from error
    wrong = (labels < 0) | (labels >= info.num_classes) | (labels != np.floor(labels))
    if wrong.any():
        raise DataError(
            f"{path}: label {texts[np.argmax(wrong)]} is not an integer within 0 to "
            f"{info.num_classes - 1}"
        )
    return labels.astype(np.int32)


def _existing(root, names, table) -> np.ndarray:
    """Full paths as bytes, after looking every folder through once."""
    folders: dict[str, set[str]] = {}
    missing = []
    for name in names:
        folder, file = os.path.split(name)
        if folder not in folders:
            try:
                folders[folder] = set(os.listdir(root / folder))
            except OSError:
                folders[folder] = set()
        if file not in folders[folder]:
            missing.append(name)
    if missing:
        raise DataError(_missing(table, missing, root))
    return np.array([os.fsencode(root / name) for name in names])


def _missing(table, names, place) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{table} names {names[0]}{more}, which {place} does not hold"


def _image_files(root):
    for folder, _, names in os.walk(root):
        for name in names:
            if name.lower().endswith(_SUFFIXES):
                yield pathlib.Path(folder, name)

"""Federations of your own data in one line: from arrays, data frames, tf.data, or folders.

The sites are the clients. Labels may be names or whole numbers; the federation's class names are
the names in their order. Where no test samples are given, each site keeps a fifth of its samples
for testing, class by class.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tff_pcdd.data import partitions, rows, sources
from tff_pcdd.data.config import DataConfig
from tff_pcdd.data.federation import ClientIndices, Federation
from tff_pcdd.data.sources import DatasetInfo, DataSource, LoadRequest, PooledData
from tff_pcdd.data.sources._arrays import OwnArrays
from tff_pcdd.data.sources._own import MANY_CLASSES
from tff_pcdd.data.sources._users import choose_users
from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.text import quoted


@dataclasses.dataclass(frozen=True)
class _Arrays(OwnArrays):
    """Arrays in memory; the name is that of the federation."""

    info = DatasetInfo("arrays", "image", MANY_CLASSES, (32, 32, 3), has_users=True)


def from_arrays(
    x: Any,
    y: Any,
    sites: Any,
    split: Any | None = None,
    *,
    groups: Any | None = None,
    class_names: Iterable[Any] | None = None,
    name: str = "arrays",
    test_fraction: float | None = None,
    test_seed: int = 0,
    augmentation: str = "none",
    **options: Any,
) -> Federation:
    """A federation of images or vectors in arrays.

    Args:
        x: images, [n, height, width] or [n, height, width, channels], with pixels from 0 to 255 or
            from 0 to 1; or vectors, [n, numbers].
        y: label of each sample, a name or a whole number, [n]; an index into `class_names` if these
            are given.
        sites: name or number of each sample's site, [n].
        split: "train", "val" or "test" for each sample, [n]; by default, test samples are chosen.
        groups: the patient, video or the like of each sample, [n], whose samples stay in one part.
        class_names: a name for each label from 0; a class's number is its label, also if some
            classes have no samples.
        name: name of the federation.
        test_fraction: share of each site's samples to keep for testing; 0.2 by default.
        test_seed: seed of the choice of test samples.
        augmentation: augmentation of training images, see `sources.ImageSource`.
        **options: other settings of the data set `npz`, such as `missing` and `join_names`.

    Raises:
        SettingError: if an option is out of bounds or does not fit the data.
        DataError: if the arrays do not fit each other, or hold values that cannot be used.

    Example:
        >>> import numpy as np
        >>> x = np.random.default_rng(0).integers(0, 256, (60, 8, 8), np.uint8)
        >>> federation = from_arrays(x, ["cat", "dog"] * 30, ["north"] * 40 + ["south"] * 20)
        >>> federation.client_ids, federation.class_names, federation.class_counts().tolist()
        (('north', 'south'), ('cat', 'dog'), [[16, 16], [8, 8]])
    """
    source = _Arrays(
        test_fraction=test_fraction, test_seed=test_seed, augmentation=augmentation, **options
    )
    pooled = source.pool_arrays(
        name, x, y, sites, split, LoadRequest(), class_names=class_names, groups=groups
    )
    return pooled.federation(name)


def from_dataframe(
    table: Any,
    *,
    folder: str | os.PathLike = ".",
    features: str | Sequence[str] | None = None,
    name: str = "dataframe",
    **options: Any,
) -> Federation:
    """A federation of a data frame with a row for each sample.

    Args:
        table: a pandas data frame, or any mapping from column names to values.
        folder: the folder that paths of images are relative to, and stay in.
        features: columns that are the inputs instead of images, or "all".
        name: name of the federation.
        **options: other settings of the data set `table`, such as `label_column="diagnosis"`,
            `site_column`, `path_column`, `split_column`, `image_size`, `test_fraction`, `missing`,
            `impute="median"` and `categorical_columns="pain,ward"`, or a list of columns.

    Raises:
        SettingError: if an option is out of bounds or does not fit the data.
        DataError: if a column or a value is missing or cannot be used.
    """
    root = pathlib.Path(os.path.expanduser(folder))
    settings = {"data_dir": str(root), "feature_columns": features, **options}
    for option in ("feature_columns", "categorical_columns", "group_column"):
        given = settings.get(option)
        if isinstance(given, Iterable) and not isinstance(given, str):
            settings[option] = quoted(*map(str, given))
    # Errors name the argument, and not the setting that it becomes.
    named = ("feature_columns", "features")
    try:
        source: Any = sources.create("table", **settings)
        return source.pool_columns(rows.frame(table, name), root, LoadRequest()).federation(name)
    except SettingError as error:
        setting, reason = error.setting.replace(*named), error.reason.replace(*named)
        raise SettingError(setting, error.value, reason) from None
    except DataError as error:
        raise DataError(str(error).replace(*named)) from None


def from_folder(data_dir: str | os.PathLike, **options: Any) -> Federation:
    """A federation of image files in folders, DIR/site/class/image.

    Args:
        data_dir: the directory.
        **options: other settings of the data set `folder`, such as `image_size` and
            `test_fraction`.

    Raises:
        SettingError: if an option is out of bounds or does not fit the images.
        DataError: if there are no images in this layout, or a file is not an image.
    """
    source = sources.create("folder", data_dir=os.fspath(data_dir), **options)
    return DataConfig(source, partitions.create("natural")).build()


def from_tf_dataset(
    train: Any, test: Any | None = None, *, name: str = "tf_dataset", **options: Any
) -> Federation:
    """A federation of `tf.data` data sets, which are read into memory once.

    Args:
        train: for each site by its name, a data set of pairs (input, label); or one data set of
            triples (input, label, site); or the data of TFF's simulations
            (`tff.simulation.datasets.ClientData`), whose clients are the sites. Elements may also
            be dictionaries with `label`, `site` in place of a third value, and one other key, the
            input, as in TensorFlow Datasets. Batches are taken apart.
        test: the same for test samples; by default, they are chosen.
        name: name of the federation.
        **options: options of `from_arrays`.

    Raises:
        SettingError: as `from_arrays`.
        DataError: as `from_arrays`, or if elements are no such pairs or triples.
    """
    read = [_read(dataset, name) for dataset in (train, test) if dataset is not None]
    x, y, sites = ([value for part in read for value in part[i]] for i in range(3))
    split = None
    if test is not None:
        split = ["train"] * len(read[0][1]) + ["test"] * len(read[1][1])
    return from_arrays(x, y, sites, split, name=name, **options)


def register_federation(federation: Federation) -> type[DataSource]:
    """Makes a federation a data set that programs find by its name.

    In a module that `--import` names, one line makes own arrays a data set:

        register_federation(from_arrays(x, y, sites, name="hospitals"))

    Args:
        federation: the federation; its name is that of the data set.

    Returns:
        The registered class.
    """
    spec = federation.input_spec

    class Registered(DataSource):
        info = DatasetInfo(
            federation.name, spec.kind, federation.num_classes, spec.shape, has_users=True
        )
        may_hold_out = any(client.validation.size for client in federation.clients)

        def load(self, request: LoadRequest) -> PooledData:
            return _pooled(federation, request)

        def input_spec(self):
            return spec

        def suggested_partition(self) -> dict[str, str]:
            return {"partition": "natural"}

    # Another registration of the same name replaces this one, as in a notebook's cell.
    Registered.__qualname__ = f"Registered({federation.name})"
    return sources.register(dataclasses.dataclass(frozen=True)(Registered))


def _pooled(federation: Federation, request: LoadRequest) -> PooledData:
    train, clients = federation.train, federation.clients
    if any(client.validation.size for client in clients):
        held_out = np.zeros(len(train), bool)
        held_out[np.concatenate([client.validation for client in clients])] = True
        train = dataclasses.replace(train, held_out=held_out)
        clients = tuple(
            ClientIndices(own.client_id, np.union1d(own.train, own.validation), own.test)
            for own in clients
        )
    train, test, users = choose_users(train, federation.test, clients, request, federation.name)
    return PooledData(
        train,
        test,
        federation.class_names,
        federation.input_spec,
        users,
        dict(federation.notes),
        federation.fingerprint,
    )


def _read(dataset: Any, name: str) -> tuple[list, list, list]:
    """Inputs, labels and sites of a data set, or of one for each site."""
    if hasattr(dataset, "create_tf_dataset_for_client"):
        clients = dataset
        dataset = {
            client: clients.create_tf_dataset_for_client(client) for client in clients.client_ids
        }
    if not isinstance(dataset, Mapping):
        x, y, sites = _elements(dataset, 3, name)
        return x, y, sites
    x, y, sites = [], [], []
    for site, part in dataset.items():
        own_x, own_y = _elements(part, 2, name)
        x += own_x
        y += own_y
        sites += [site] * len(own_y)
    return x, y, sites


def _elements(dataset: Any, number: int, name: str) -> tuple[list, ...]:
    """The values of the samples, as `number` lists."""
    wanted = {2: "pairs (input, label)", 3: "triples (input, label, site)"}[number]
    spec = getattr(dataset, "element_spec", None)
    if isinstance(spec, Mapping):
        keys = ("label", "site")[: number - 1]
        others = [key for key in spec if key not in keys]
        if len(others) != 1 or len(spec) != number:
            raise DataError(
                f"{name}: elements have the keys {', '.join(map(str, spec)):.100}; {wanted} are "
                f"needed, so choose with dataset.map(lambda e: (e[…], …)), or keep the "
                f"keys {', '.join(keys)} and one other"
            )
        chosen = (others[0], *keys)
        dataset = dataset.map(lambda element: tuple(element[key] for key in chosen))
        spec = dataset.element_spec
    if not isinstance(spec, tuple) or len(spec) != number:
        raise DataError(f"{name}: a tf.data.Dataset of {wanted} is needed, not of {spec!s:.100}")
    shapes = [each.shape for each in spec]
    if any(shape.rank is None for shape in shapes):
        raise DataError(
            f"{name}: the elements have no known shape; give from_generator an output_signature"
        )
    # Labels with a rank of their own, such as [1], are those of a batch beside as many inputs only;
    # and a batch has as many sites.
    is_batch = len(shapes[0]) > 1 and all(
        len(shape) and shapes[0][:1].is_compatible_with(shape[:1]) for shape in shapes[1:]
    )
    if is_batch:
        dataset = dataset.unbatch()
    columns: tuple[list, ...] = tuple([] for _ in range(number))
    for element in dataset.as_numpy_iterator():
        for column, value in zip(columns, element, strict=True):
            column.append(np.asarray(value) if column is columns[0] else value)
    if is_batch and number == 2 and len(shapes[1]) == 1 and _are_one_hot(columns[1], shapes[1][0]):
        raise DataError(
            f"{name}: labels of shape {shapes[1]} beside inputs of shape {shapes[0]} may be "
            "one-hot labels or a batch; take the argmax of one-hot labels, and apply unbatch() to "
            "batches"
        )
    return columns


def _are_one_hot(labels: list, size: int | None) -> bool:
    """Whether the labels of what was taken for batches, `size` each, have a single 1 among zeros.

    Images are not two pixels high, so two labels are those of a batch.
    """
    if size is None or size < 3 or not labels:
        return False
    rows = np.reshape(labels, [-1, size])
    return bool(np.isin(rows, (0, 1)).all() and (rows.sum(axis=1) == 1).all())

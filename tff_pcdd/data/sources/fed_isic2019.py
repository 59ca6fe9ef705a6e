"""Fed-ISIC2019: skin lesions from six centres, in FLamby's layout.

FLamby: Datasets and Benchmarks for Cross-Silo Federated Learning in Realistic Healthcare Settings;
J. Ogier du Terrail et al.; NeurIPS 2022. The directory holds FLamby's table `train_test_split` and
the folder of its prepared images.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tff_pcdd.data.federation import ClientIndices, Examples
from tff_pcdd.data.sources import LoadRequest, PooledData, register
from tff_pcdd.data.sources._image_lists import ImageListSource, first_existing, image_info
from tff_pcdd.data.sources._table_files import read_table
from tff_pcdd.data.sources._users import by_user, choose_users
from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.settings import option


@register
@dataclasses.dataclass(frozen=True)
class FedIsic2019(ImageListSource):
    """Fed-ISIC2019; its users are the six centres, or parts of them with `split_centres`."""

    info = image_info("fed_isic2019", 8, 200, 224, has_users=True)
    user_options = ("split_centres",)

    split_centres: int | None = option(
        None,
        "Divide the six centres of Fed-ISIC2019 into this many clients (20 in the papers).",
        type=int,
        minimum=1,
    )

    def load(self, request: LoadRequest) -> PooledData:
        root = self.directory()
        table = first_existing(
            root, ("train_test_split", "train_test_split.csv", "train_test_folds.csv")
        )
        folder = first_existing(
            root, ("ISIC_2019_Training_Input_preprocessed", "ISIC_2019_Training_Input")
        )
        needed = ("image", "target", "center", "fold")
        columns = read_table(table, needed)
        images, targets, centres, parts = (list(columns.values(name, "")) for name in needed)
        folds = np.array(parts)
        if unknown := sorted(set(parts) - {"train", "test"}):
            raise DataError(f"{table}: fold {unknown[0]!r} is neither train nor test")
        labels = self.labels(targets, table)
        paths = self.existing_files([f"{name}.jpg" for name in images], table, root, folder.name)
        in_train, in_test = np.flatnonzero(folds == "train"), np.flatnonzero(folds == "test")
        users = by_user([centres[i] for i in in_train], [centres[i] for i in in_test])
        if self.split_centres is not None:
            users = split_centres(users, self.split_centres, request.seed)
        train, test, users = choose_users(
            Examples(paths[in_train], labels[in_train]),
            Examples(paths[in_test], labels[in_test]),
            users,
            request,
            root,
        )
        return PooledData(
            train,
            test,
            class_names=("MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC"),
            input_spec=self.image_spec(),
            users=users,
        )


def split_centres(
    clients: Sequence[ClientIndices], number: int, seed: int
) -> tuple[ClientIndices, ...]:
    """Divides centres into smaller clients, the largest first, until there are `number` of them.

    The samples of each centre are shuffled and divided evenly, so its parts are alike. (FedGELA and
    FedMR use 20 clients made of the six centres of Fed-ISIC2019 without saying how.)

    Args:
        clients: the centres.
        number: number of clients, at least the number of centres.
        seed: a non-negative integer, the only source of randomness.

    Returns:
        Clients named `<centre>-<part>`.

    Raises:
        SettingError: if there would be more clients than training samples, or fewer than centres.
    """
    sizes = [len(client.train) for client in clients]
    if number < len(clients):
        raise SettingError("split_centres", number, f"there are already {len(clients)} centres")
    if number > sum(sizes):
        raise SettingError(
            "split_centres", number, f"there are only {sum(sizes)} training samples to share"
        )
    pieces = [1] * len(clients)
    for _ in range(number - len(clients)):
        pieces[max(range(len(clients)), key=lambda i: sizes[i] / pieces[i])] += 1
    rng = np.random.default_rng(seed)
    parts: list[ClientIndices] = []
    for client, count in zip(clients, pieces, strict=True):
        train, test = (
            np.array_split(rng.permutation(rows), count) for rows in (client.train, client.test)
        )
        parts.extend(
            ClientIndices(f"{client.client_id}-{i}", np.sort(train[i]), np.sort(test[i]))
            for i in range(count)
        )
    return tuple(parts)

"""iNaturalist-User-120k: species photographed by 9,275 users, images of iNaturalist 2017.

Federated Visual Classification with Real-World Data Distribution; T.-M. H. Hsu, H. Qi, M. Brown;
ECCV 2020. The directory, or a folder `inaturalist-*` in it, holds the authors' tables
`federated_train*.csv` and `test*.csv` with the columns image_id, class and user_id (or image, class
and user). Images are found by their name anywhere below the directory. The authors' test table
names no users, so clients have no local test set with it.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterator

import numpy as np

from tff_pcdd.data.federation import Examples
from tff_pcdd.data.sources import LoadRequest, PooledData, register
from tff_pcdd.data.sources._image_lists import ImageListSource, describe_missing, image_info
from tff_pcdd.data.sources._table_files import read_table
from tff_pcdd.data.sources._users import by_user, choose_users
from tff_pcdd.errors import DataError

_SUFFIXES = (".jpg", ".jpeg", ".png")


@register
@dataclasses.dataclass(frozen=True)
class INaturalist(ImageListSource):
    """iNaturalist-User-120k with 1203 species, which have no names here."""

    info = image_info("inaturalist", 1203, 224, 256, has_users=True)

    def load(self, request: LoadRequest) -> PooledData:
        root = self.directory()
        # In an order that does not depend on the disk; of files of one name, the last one counts.
        files = {path.stem: path for path in sorted(_image_files(root))}
        parts: list[Examples] = []
        users: list[list[str]] = []
        for pattern in ("federated_train*.csv", "test*.csv"):
            found = sorted([*root.glob(pattern), *root.glob(f"inaturalist-*/{pattern}")])
            if len(found) != 1:
                raise DataError(f"{root} holds {len(found)} tables {pattern}; there must be one")
            needed = ("image_id", "class") if parts else ("image_id", "class", "user_id")
            table = read_table(found[0], needed)
            # An id is a file name without extension; tables may add the folder and the extension.
            images = table.values("image_id", "")
            stems = [os.path.basename(name).removesuffix(".jpg") for name in images]
            missing = [stem for stem in stems if stem not in files]
            if missing:
                place = f"{root} and the folders in it"
                raise DataError(describe_missing(found[0], missing, place))
            for stem in stems:
                self.check_image(files[stem], root)
            paths = np.array([os.fsencode(files[stem]) for stem in stems])
            parts.append(Examples(paths, self.labels(table.values("class", ""), found[0])))
            owners = table.values("user_id", "") if "user_id" in table else ()
            users.append([owner for owner in owners if owner])
        if len(users[1]) < len(parts[1]):
            users[1] = []
        train, test = parts
        train, test, clients = choose_users(train, test, by_user(*users), request, root)
        return PooledData(
            train,
            test,
            class_names=tuple(map(str, range(self.info.num_classes))),
            input_spec=self.image_spec(),
            users=clients,
        )


def _image_files(root: pathlib.Path) -> Iterator[pathlib.Path]:
    """All image files in a directory and the folders in it."""
    for folder, _, names in os.walk(root):
        yield from (pathlib.Path(folder, n) for n in names if n.lower().endswith(_SUFFIXES))

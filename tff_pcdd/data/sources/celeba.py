"""CelebA in LEAF's layout: faces that smile or do not, by the person.

LEAF: A Benchmark for Federated Settings; S. Caldas et al.; 2018. The directory, or a folder data in
it, holds the folders train and test of LEAF's JSON files, which name images, and the images in
raw/img_align_celeba.
"""

from __future__ import annotations

import dataclasses

from tff_pcdd.data.input_spec import IMAGE_FILE
from tff_pcdd.data.sources import DatasetInfo, LoadRequest, PooledData, register
from tff_pcdd.data.sources._image_files import OwnImages
from tff_pcdd.data.sources._image_lists import first_existing
from tff_pcdd.data.sources._json import parse
from tff_pcdd.data.sources._leaf_json import LeafDirectory, index, mapped
from tff_pcdd.data.sources._names import as_names
from tff_pcdd.data.sources._own import OwnSamples
from tff_pcdd.errors import DataError


@register
@dataclasses.dataclass(frozen=True)
class CelebA(OwnImages, LeafDirectory):
    """CelebA with the two classes that LEAF makes of an attribute; the persons are the clients."""

    info = DatasetInfo("celeba", IMAGE_FILE, 2, (32, 32, 3), has_users=True, needs_data_dir=True)

    def load(self, request: LoadRequest) -> PooledData:
        root = self.folder()
        images = first_existing(root, ("raw/img_align_celeba", "img_align_celeba"))
        names: list[str] = []
        labels: list[str] = []
        persons: list[str] = []
        parts: list[str] = []
        for part in ("train", "test"):
            for person, entry in index(root / part, self.limits).items():
                where = f"{entry.path}: user {person!r:.80}"
                with mapped(entry.path) as text:
                    value = parse(text, entry.start, entry.end, entry.path, self.limits, person)
                x, y = (value.get(key) if isinstance(value, dict) else None for key in "xy")
                if not isinstance(x, list) or not isinstance(y, list):
                    raise DataError(f"{where}: the lists 'x' and 'y' are needed")
                if not len(x) == len(y) == entry.size or not all(isinstance(n, str) for n in x):
                    raise DataError(
                        f"{where}: x has to name {entry.size} images, and y to hold as many labels"
                    )
                names += x
                labels += as_names(y, "label", where)
                persons += [person] * len(x)
                parts += [part] * len(x)
        paths = self.existing_files(names, root / "train", images.parent, images.name)
        samples = OwnSamples(str(root), paths, labels, persons, parts, lambda row: names[row])
        return self.pool_images(samples, request)

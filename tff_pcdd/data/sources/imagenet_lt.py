"""ImageNet-LT: lists of `path label` beside the images of ImageNet.

Large-Scale Long-Tailed Recognition in an Open World; Z. Liu et al.; CVPR 2019. The test list is the
balanced validation set of ImageNet; the list `val` is not used.
"""

from __future__ import annotations

import dataclasses

from tff_pcdd.data.federation import Examples
from tff_pcdd.data.sources import LoadRequest, PooledData, register
from tff_pcdd.data.sources._image_lists import ImageListSource, first_existing, image_info
from tff_pcdd.data.sources._table_files import read_text
from tff_pcdd.errors import DataError


@register
@dataclasses.dataclass(frozen=True)
class ImageNetLT(ImageListSource):
    """ImageNet-LT with 1000 classes, which have no names here."""

    info = image_info("imagenet_lt", 1000, 224, 256, has_users=False)

    def load(self, request: LoadRequest) -> PooledData:
        root = self.directory()
        parts = []
        for split in ("train", "test"):
            table = first_existing(root, (f"ImageNet_LT_{split}.txt",))
            lines = [
                line.rsplit(maxsplit=1) for line in read_text(table).splitlines() if line.strip()
            ]
            for number, words in enumerate(lines, 1):
                if len(words) != 2:
                    raise DataError(f"{table}: line {number} is not `path label`")
            if not lines:
                raise DataError(f"{table}: the list is empty")
            labels = self.labels([label for _, label in lines], table)
            paths = self.existing_files([path for path, _ in lines], table, root)
            parts.append(Examples(paths, labels))
        train, test = parts
        return PooledData(
            train,
            test,
            class_names=tuple(map(str, range(self.info.num_classes))),
            input_spec=self.image_spec(),
        )

"""Data of a federation: sources, partitions among clients, long tails, preprocessing.

    federation = load_federation("digits", "class", num_clients=10, classes_per_client=2)

Importing this package imports no TensorFlow.
"""

from tff_pcdd.data import tff_cache  # noqa: F401 - makes its sets known
from tff_pcdd.data.config import DATASETS_OF, PARTITIONS, DataConfig, load_federation
from tff_pcdd.data.errors import DataError
from tff_pcdd.data.federation import ClientIndices, Examples, Federation, InputSpec
from tff_pcdd.data.image_folders import split_centres
from tff_pcdd.data.leaf import load_leaf
from tff_pcdd.data.long_tail import ClassGroups, class_groups, long_tail_counts, long_tail_indices
from tff_pcdd.data.partitioners import (
    Split,
    partition_by_class,
    partition_dirichlet,
    partition_iid,
    split_by_class,
    split_dirichlet,
    split_iid,
)
from tff_pcdd.data.preprocessing import augment, normalize
from tff_pcdd.data.sources import (
    AUGMENTATIONS,
    NORMALIZATIONS,
    DatasetInfo,
    Source,
    SourceOptions,
    dataset_info,
    dataset_names,
    image_spec,
    load_source,
    register_source,
    stratified_indices,
)

__all__ = [
    "AUGMENTATIONS",
    "DATASETS_OF",
    "NORMALIZATIONS",
    "PARTITIONS",
    "ClassGroups",
    "ClientIndices",
    "DataConfig",
    "DataError",
    "DatasetInfo",
    "Examples",
    "Federation",
    "InputSpec",
    "Source",
    "SourceOptions",
    "Split",
    "augment",
    "class_groups",
    "dataset_info",
    "dataset_names",
    "image_spec",
    "load_federation",
    "load_leaf",
    "load_source",
    "long_tail_counts",
    "long_tail_indices",
    "normalize",
    "partition_by_class",
    "partition_dirichlet",
    "partition_iid",
    "register_source",
    "split_by_class",
    "split_centres",
    "split_dirichlet",
    "split_iid",
    "stratified_indices",
]

"""Data of a federation: sources, partitions among clients, long tails, transforms.

    federation = load_federation("digits", "class", num_clients=10, classes_per_client=2)

The packages `sources` and `partitions` hold the registered data sets and partitions, and show how
to add your own. Importing this package does not import TensorFlow.
"""

from tff_pcdd.data import partitions, sources
from tff_pcdd.data.config import DataConfig, load_federation
from tff_pcdd.data.federation import ClientIndices, Examples, Federation
from tff_pcdd.data.holdout import hold_out
from tff_pcdd.data.input_spec import IMAGE, IMAGE_FILE, TEXT, VECTOR, InputSpec
from tff_pcdd.data.long_tail import (
    ClassGroups,
    class_group_masks,
    class_groups,
    long_tail_counts,
    long_tail_indices,
)
from tff_pcdd.data.own import (
    from_arrays,
    from_dataframe,
    from_folder,
    from_tf_dataset,
    register_federation,
)
from tff_pcdd.data.partitions import Partition, Split
from tff_pcdd.data.partitions.by_class import partition_by_class, split_by_class
from tff_pcdd.data.partitions.dirichlet import partition_dirichlet, split_dirichlet
from tff_pcdd.data.partitions.iid import partition_iid, split_iid
from tff_pcdd.data.partitions.quantity import partition_quantity, split_quantity
from tff_pcdd.data.partitions.shards import partition_shards, split_shards
from tff_pcdd.data.sources import (
    DatasetInfo,
    DataSource,
    DirectorySource,
    ImageSource,
    LoadRequest,
    PooledData,
    TextSource,
)
from tff_pcdd.data.sources.fed_isic2019 import split_centres
from tff_pcdd.data.sources.leaf import load_leaf
from tff_pcdd.data.subsets import stratified_indices
from tff_pcdd.data.transforms import augment, normalize
from tff_pcdd.errors import DataError

__all__ = [
    "IMAGE",
    "IMAGE_FILE",
    "TEXT",
    "VECTOR",
    "ClassGroups",
    "ClientIndices",
    "DataConfig",
    "DataError",
    "DataSource",
    "DatasetInfo",
    "DirectorySource",
    "Examples",
    "Federation",
    "ImageSource",
    "InputSpec",
    "LoadRequest",
    "Partition",
    "PooledData",
    "Split",
    "TextSource",
    "augment",
    "class_group_masks",
    "class_groups",
    "from_arrays",
    "from_dataframe",
    "from_folder",
    "from_tf_dataset",
    "hold_out",
    "load_federation",
    "load_leaf",
    "long_tail_counts",
    "long_tail_indices",
    "normalize",
    "partition_by_class",
    "partition_dirichlet",
    "partition_iid",
    "partition_quantity",
    "partition_shards",
    "partitions",
    "register_federation",
    "sources",
    "split_by_class",
    "split_centres",
    "split_dirichlet",
    "split_iid",
    "split_quantity",
    "split_shards",
    "stratified_indices",
]

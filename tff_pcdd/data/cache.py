"""Data sets that stay in memory while a study computes one run after the other on them.

Decoding a set of images takes longer than many short runs. Outside of studies nothing is kept, so a
program that loads data again sees what has changed on the disk.
"""

from __future__ import annotations

import collections
import dataclasses
import sys

from tff_pcdd.data import read_files
from tff_pcdd.data.pooled import LoadRequest, PooledData
from tff_pcdd.data.sources import DataSource

# What a process keeps at most, in bytes: as much as image files take that are decoded once. Larger
# data sets are loaded for each run. A run on what is kept uses the same arrays.
_MOST_BYTES = 1 << 30

_kept: collections.OrderedDict[tuple[DataSource, LoadRequest], PooledData] | None = None


def keep() -> None:
    """From now on, this process keeps the data sets that it loads."""
    global _kept
    if _kept is None:
        _kept = collections.OrderedDict()


def forget() -> None:
    """Drops what is kept, and keeps nothing from now on."""
    global _kept
    _kept = None


def load(source: DataSource, request: LoadRequest) -> PooledData:
    """What `source.load(request)` returns, loaded again only if it is not kept.

    Its arrays must not be changed.
    """
    if source.draws_only_users and request.max_clients is None:
        # Data seeds and partitions share the samples.
        request = LoadRequest()
    key = source, request
    # A source of the user's own may hold what cannot be looked up.
    if _kept is None or not _is_hashable(key):
        return _load(source, request)
    if key in _kept:
        _kept.move_to_end(key)
        return _kept[key]
    loaded = _load(source, request)
    if _size(loaded) <= _MOST_BYTES:
        _kept[key] = loaded
        while sum(map(_size, _kept.values())) > _MOST_BYTES:
            _kept.popitem(last=False)
    return loaded


def _load(source: DataSource, request: LoadRequest) -> PooledData:
    """Loads data, with the list of their files: as they were before, should they change now."""
    found = read_files.listing(source)
    loaded = source.load(request)
    return dataclasses.replace(loaded, read_files=found) if found else loaded


def _is_hashable(key: object) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


def _size(data: PooledData) -> int:
    """The bytes of the samples."""
    arrays = [array for part in (data.train, data.test) for array in (part.x, part.y)]
    # Of texts, arrays only hold references.
    texts = (text for array in arrays if array.dtype == object for text in array)
    return sum(array.nbytes for array in arrays) + sum(map(sys.getsizeof, texts))

"""What stays in memory between the runs of a study, and what is loaded again."""

import dataclasses

import numpy as np
import pytest

from tff_pcdd import data
from tff_pcdd.data import DataConfig, DatasetInfo, Examples, cache, partitions, sources

# Of the samples of a source, for training and for testing.
_SIZE = 2 * (10 * 4 * 4 + 10 * 4)


@dataclasses.dataclass(frozen=True)
class Counted(sources.ImageSource):
    """Ten black images for training and for testing; `loads` lists what was loaded."""

    loads: list = dataclasses.field(default_factory=list, compare=False)
    number: int = 0
    info = DatasetInfo("counted", "image", num_classes=2, shape=(4, 4, 1))

    def load(self, request):
        self.loads.append((self.number, request.seed))
        samples = Examples(np.zeros((10, 4, 4, 1), np.uint8), np.arange(10) % 2)
        return sources.PooledData(samples, samples, ("even", "odd"), self.image_spec())


@pytest.fixture
def kept():
    cache.keep()
    yield
    cache.forget()


def build(source, seed=0):
    return DataConfig(source, partitions.create("iid", num_clients=2), seed=seed).build()


def test_equal_settings_and_seeds_share_what_was_loaded(kept):
    loads = []
    first = build(Counted(loads=loads))
    assert build(Counted(loads=loads)).train.x is first.train.x
    cache.keep()
    assert build(Counted(loads=loads), seed=1).train.x is not first.train.x
    build(Counted(loads=loads, number=1))
    build(Counted(loads=loads))
    assert loads == [(0, 0), (0, 1), (1, 0)]


@dataclasses.dataclass(frozen=True)
class WithUsers(Counted):
    """Four users, or some that the seed draws."""

    draws_only_users = True
    info = dataclasses.replace(Counted.info, name="with_users", has_users=True)

    def load(self, request):
        users = np.random.default_rng(request.seed).permutation(4)[: request.max_clients]
        parts = [data.ClientIndices(str(k), np.arange(10), np.arange(10)) for k in sorted(users)]
        return dataclasses.replace(super().load(request), users=tuple(parts))


def test_data_seeds_share_samples_unless_they_draw_users(kept):
    loads = []
    source = WithUsers(loads=loads)
    for partition in (partitions.create("iid", num_clients=2), partitions.create("natural")):
        for seed in (0, 1, 2):
            DataConfig(source, partition, seed=seed).build()
    assert len(loads) == 1
    drawn = partitions.create("natural", max_clients=2)
    for seed in (1, 2):
        names = DataConfig(source, drawn, seed=seed).build().client_ids
        chosen = np.random.default_rng(seed).permutation(4)[:2]
        assert names == tuple(map(str, sorted(chosen)))
    assert len(loads) == 3


def test_nothing_is_kept_outside_of_studies(kept):
    loads = []
    build(Counted(loads=loads))
    cache.forget()
    build(Counted(loads=loads))
    build(Counted(loads=loads))
    assert len(loads) == 3


def test_a_source_that_cannot_be_compared_is_loaded_for_each_run(kept):
    class Unhashable(Counted):
        __hash__ = None

    source = Unhashable()
    build(source)
    build(source)
    assert len(source.loads) == 2


def test_what_was_used_last_is_kept_within_a_bound(kept, monkeypatch):
    """Both parts of a set are counted, with four bytes for each label."""
    monkeypatch.setattr(cache, "_MOST_BYTES", 2 * _SIZE)
    loads = []
    for number in (0, 1, 0, 2, 0, 1):
        build(Counted(loads=loads, number=number))
    assert [number for number, _ in loads] == [0, 1, 2, 1]


def test_what_is_too_large_is_not_kept(kept, monkeypatch):
    monkeypatch.setattr(cache, "_MOST_BYTES", _SIZE - 1)
    loads = []
    build(Counted(loads=loads))
    build(Counted(loads=loads))
    assert len(loads) == 2


def test_texts_count_with_their_characters():
    texts = Examples(np.array(["x" * 1000, "y"], object), np.arange(2))
    assert cache._size(sources.PooledData(texts, texts, ("a", "b"), None)) > 2000

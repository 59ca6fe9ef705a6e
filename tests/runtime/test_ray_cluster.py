"""When a process connects to Ray, and when it leaves; nothing is started here."""

import contextlib

import pytest

from tff_pcdd.errors import SettingError
from tff_pcdd.runtime import ray_cluster

ray = pytest.importorskip("ray")

OTHER = "192.0.2.1:6379"


@pytest.fixture
def events(monkeypatch):
    """What happens to the connection."""
    found = []

    def open_connection(address, *_):
        found.append(f"open {address}")
        ray_cluster._opened.callback(found.append, "close")

    for name, value in (("_users", 0), ("_keepers", 0), ("_address", None), ("_is_open", False)):
        monkeypatch.setattr(ray_cluster, name, value)
    monkeypatch.setattr(ray_cluster, "_opened", contextlib.ExitStack())
    monkeypatch.setattr(ray_cluster, "_open", open_connection)
    monkeypatch.setattr(ray, "is_initialized", lambda: found[-1:] not in ([], ["close"]))
    return found


def test_the_last_user_closes_a_connection(events):
    with ray_cluster.connected(None):
        with ray_cluster.connected(None):
            pass
        assert events == ["open None"]
        assert ray_cluster.is_open()
        with pytest.raises(SettingError, match="this process is connected to a cluster of its own"):
            ray_cluster.connect(OTHER)
    assert events == ["open None", "close"]
    assert not ray_cluster.is_open()
    with ray_cluster.connected(OTHER):
        assert events[2:] == [f"open {OTHER}"]


def test_a_connection_is_kept_for_further_users(events):
    with ray_cluster.kept():
        assert not ray_cluster.is_open()
        for _ in range(2):
            with ray_cluster.connected(OTHER):
                pass
            assert events == [f"open {OTHER}"]
            assert ray_cluster.is_open()
        with pytest.raises(SettingError, match=f"this process is connected to {OTHER}"):
            ray_cluster.connect(None)
    assert events == [f"open {OTHER}", "close"]


def test_a_user_outlives_the_block_that_keeps_the_connection(events):
    with pytest.raises(KeyboardInterrupt), ray_cluster.kept():
        ray_cluster.connect(None)
        raise KeyboardInterrupt
    assert events == ["open None"]
    ray_cluster.release()
    assert events == ["open None", "close"]


def test_without_users_there_is_no_connection(events):
    with ray_cluster.kept(), ray_cluster.kept():
        pass
    assert events == []

"""When a process connects to Ray, and when it leaves; nothing is started here."""

import contextlib
import subprocess

import pytest

from tff_pcdd.errors import ActorsLostError, SettingError
from tff_pcdd.runtime.ray import cluster, watchdog

ray = pytest.importorskip("ray")

OTHER = "192.0.2.1:6379"


@pytest.fixture
def events(monkeypatch):
    """What happens to the connection."""
    found = []

    def open_connection(address, *_):
        found.append(f"open {address}")
        cluster._opened.callback(found.append, "close")

    for name, value in (("_users", 0), ("_keepers", 0), ("_address", None), ("_is_open", False)):
        monkeypatch.setattr(cluster, name, value)
    monkeypatch.setattr(cluster, "_opened", contextlib.ExitStack())
    monkeypatch.setattr(cluster, "_open", open_connection)
    monkeypatch.setattr(ray, "is_initialized", lambda: found[-1:] not in ([], ["close"]))
    return found


def test_the_last_user_closes_a_connection(events):
    with cluster.connected(None):
        with cluster.connected(None):
            pass
        assert events == ["open None"]
        assert cluster._is_open
        with pytest.raises(SettingError, match="this process is connected to a cluster of its own"):
            cluster.connect(OTHER)
    assert events == ["open None", "close"]
    assert not cluster._is_open
    with cluster.connected(OTHER):
        assert events[2:] == [f"open {OTHER}"]


def test_a_connection_is_kept_for_further_users(events):
    with cluster.kept():
        assert not cluster._is_open
        for _ in range(2):
            with cluster.connected(OTHER):
                pass
            assert events == [f"open {OTHER}"]
            assert cluster._is_open
        with pytest.raises(SettingError, match=f"this process is connected to {OTHER}"):
            cluster.connect(None)
    assert events == [f"open {OTHER}", "close"]


def test_a_kept_connection_that_ray_has_ended_is_replaced(events, monkeypatch):
    with subprocess.Popen(["sleep", "60"]) as process:
        vital = watchdog.Vital({"raylet": process.pid})
        with cluster.kept():
            with cluster.connected(None):
                monkeypatch.setattr(cluster, "_vital", vital)
                cluster.check()
                process.kill()
                process.wait()
                with pytest.raises(ActorsLostError, match="Ray's process raylet has ended"):
                    cluster.check()
            with cluster.connected(None):
                assert events == ["open None", "close", "open None"]
        vital.close()
        assert not vital.ended()


def test_a_user_outlives_the_block_that_keeps_the_connection(events):
    with pytest.raises(KeyboardInterrupt), cluster.kept():
        cluster.connect(None)
        raise KeyboardInterrupt
    assert events == ["open None"]
    cluster.release()
    assert events == ["open None", "close"]


def test_without_users_there_is_no_connection(events):
    with cluster.kept(), cluster.kept():
        pass
    assert events == []

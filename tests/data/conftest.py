"""Fixtures that find real data and undo registrations."""

import logging
import os
import pathlib

import pytest

from tff_pcdd.data import checks, partitions, sources

_ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def real_data():
    """Finds a folder of real data by name; the test is skipped without it.

    It is looked up in `$TFF_PCDD_SHARED`/data, else in ../shared/data beside the checkout.
    """
    named = os.environ.get("TFF_PCDD_SHARED")
    shared = pathlib.Path(named) if named else _ROOT.parent / "shared"

    def find(name: str) -> pathlib.Path:
        for folder in (shared / "data" / name, shared.parent / "data" / name):
            if folder.is_dir():
                return folder
        pytest.skip(f"no real data {name} in {shared / 'data'}")

    return find


@pytest.fixture
def own_components(monkeypatch):
    """Undoes all registrations of data sets and partitions after the test."""
    for registry in (sources.registry, partitions.registry):
        monkeypatch.setattr(registry, "_classes", registry.classes())


@pytest.fixture(autouse=True)
def warnings_again(caplog):
    """The log, with warnings that other tests have seen already: a process shows each once."""
    checks.warn_once.cache_clear()
    caplog.set_level(logging.WARNING)
    return caplog

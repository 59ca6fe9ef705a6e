"""Where real data are looked for: `$TFF_PCDD_SHARED`/data, else ../shared/data by the checkout."""

import os
import pathlib

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def real_data():
    """A folder of real data by name; the test is skipped without it."""
    named = os.environ.get("TFF_PCDD_SHARED")
    shared = pathlib.Path(named) if named else _ROOT.parent / "shared"

    def find(name: str) -> pathlib.Path:
        for folder in (shared / "data" / name, shared.parent / "data" / name):
            if folder.is_dir():
                return folder
        pytest.skip(f"no real data {name} in {shared / 'data'}")

    return find

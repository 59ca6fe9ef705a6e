"""What programs say when they cannot write."""

import errno
import os

import pytest

from tff_pcdd.errors import WriteError
from tff_pcdd.report import partition


def test_a_full_disk_is_one_line(call_here, tmp_path, monkeypatch):
    def write(*_):
        raise WriteError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"{tmp_path}/clients.png")

    monkeypatch.setattr(partition, "write", write)
    status, out, err = call_here("partition", f"--output_dir={tmp_path}")
    assert (status, out) == (1, "")
    assert err == (
        f"partition: error: cannot write {tmp_path}/clients.png: No space left on device; what "
        "was complete is kept, and the same command continues from there\n"
    )


@pytest.mark.parametrize("program", ["train", "partition"])
def test_a_disk_is_tried_before_data_are_read(program, call_here, tmp_path, monkeypatch):
    """Although its permissions allow it, nothing can be written."""

    def fail(_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "fsync", fail)
    status, _, err = call_here(program, "--dataset=digits", f"--output_dir={tmp_path / 'new'}")
    assert status == 2
    assert f"--output_dir={tmp_path}/new: cannot write to {tmp_path}: Read-only file sys" in err
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())

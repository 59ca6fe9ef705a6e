"""Signatures of what a user has written or read: the paths in a run's settings, and flagfiles.

A run's directory may come from anyone, and its settings may name files anywhere on this machine,
such as the directory of the data. The user who trained a run has signed these paths with a secret
that only this user can read. Paths without such a signature are not followed.

A flagfile may come from anyone, too. Only one with signed contents may do more than name plain
settings; the signatures of contents are beside the secret.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from tff_pcdd import files
from tff_pcdd.errors import DamagedFileError

FILE = "signature.json"

_BYTES = 32

# The file of the signatures of contents, one on each line.
_CONTENTS = "flagfiles"


def sign(directory: Path, paths: Mapping[str, str]) -> None:
    """Writes the signature of paths into a run's directory, and removes one of other paths.

    Without a place for the secret, nothing is signed, and the paths have to be given again when the
    run is restored.

    Args:
        directory: the directory of the run.
        paths: the settings that are paths, by name; a relative path is one from the working
            directory.
    """
    secret = _secret(create=True) if paths else None
    if secret is None:
        files.remove(directory / FILE)
        return
    content = {"signature": _signature(secret, paths)}
    files.write_text(directory / FILE, json.dumps(content) + "\n")


def is_signed(directory: Path, paths: Mapping[str, str]) -> bool:
    """Whether this user has signed these paths, all of those in a run's settings."""
    secret = _secret(create=False)
    path = directory / FILE
    if secret is None:
        return False
    try:
        found = files.read_json(path, 1000)["signature"]
        return hmac.compare_digest(found, _signature(secret, paths))
    except (OSError, DamagedFileError, TypeError, KeyError):
        return False


def sign_contents(contents: bytes) -> bool:
    """Signs the contents of a flagfile, wherever it is; whether this user can sign."""
    secret = _secret(create=True)
    if secret is None:
        return False
    if not is_signed_contents(contents):
        files.append_text(_home() / _CONTENTS, f"{_digest(secret, contents)}\n")
    return True


def write_signed(path: Path, text: str) -> None:
    """Writes a flagfile, and signs its contents if this user can sign.

    A sweep must not fail because the disk of the home directory is full or read-only.
    """
    files.write_text(path, text)
    with contextlib.suppress(OSError):
        sign_contents(text.encode())


def is_signed_contents(contents: bytes) -> bool:
    """Whether this user has signed these contents."""
    secret = _secret(create=False)
    if secret is None:
        return False
    try:
        known = files.read_bytes(_home() / _CONTENTS).decode().split()
    except (OSError, ValueError):
        return False
    return _digest(secret, contents) in known


def _digest(secret: bytes, contents: bytes) -> str:
    return hmac.new(secret, contents, hashlib.sha256).hexdigest()


def _signature(secret: bytes, paths: Mapping[str, str]) -> str:
    absolute = {name: os.path.abspath(os.path.expanduser(path)) for name, path in paths.items()}
    text = json.dumps(absolute, sort_keys=True)
    return _digest(secret, text.encode())


def _secret(*, create: bool) -> bytes | None:
    """The secret of this user; None if there is none, or others could have read or written it."""
    try:
        path = _home() / "secret"
        if create and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _create(path)
        status = path.stat()
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            return None
        secret = files.read_bytes(path, _BYTES)
    except (OSError, RuntimeError):  # Path.home() may not be known.
        return None
    return secret if len(secret) == _BYTES else None


def _home() -> Path:
    """Where the secret and the signatures of contents are."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "tff_pcdd"


def _create(path: Path) -> None:
    """Creates the secret, unless another process does so at the same time."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink(missing_ok=True)

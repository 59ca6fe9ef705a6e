"""Hashes of a federation's data, by which a checkpoint recognizes them."""

from __future__ import annotations

import hashlib
import os

import numpy as np

from tff_pcdd.data import Federation


def data_digest(federation: Federation) -> str:
    """Hash of all samples and of their division among the clients.

    Of image files, the paths below their common folder count, so the folder can be moved. Their
    contents count if the federation's fingerprint includes them. Every bit of a number counts: 0.0
    and -0.0 are different samples, which a layer may tell apart.

    Returns:
        64 hexadecimal digits, equal on every machine.

    Example:
        >>> from tff_pcdd.data import DataConfig
        >>> data_digest(DataConfig(seed=0).build()) == data_digest(DataConfig(seed=1).build())
        False
    """
    digest = hashlib.sha256()
    inputs = [federation.train.x, federation.test.x]
    if federation.input_spec.dtype == "string":
        inputs = _without_folder(inputs)
    arrays = [*inputs, federation.train.y, federation.test.y]
    for client in federation.clients:
        digest.update(f"{str(client.client_id)!r} ".encode())
        arrays += [client.train, client.test, client.validation]
    for client in federation.new_clients:
        digest.update(f"new {str(client.client_id)!r} ".encode())
        arrays += [client.train, client.test, client.validation]
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    if federation.fingerprint:
        digest.update(federation.fingerprint.encode())
    return digest.hexdigest()


def meaning_digest(federation: Federation) -> str:
    """Hash of what numbers stand for: kind, type, shape and scale of the inputs, names of classes.

    Means and deviations do not count: they are measured, with rounding that differs by machine.
    """
    spec = federation.input_spec
    meaning = (spec.kind, spec.dtype, spec.shape, spec.scale, federation.class_names)
    return hashlib.sha256(repr(meaning).encode()).hexdigest()


def _without_folder(parts: list[np.ndarray]) -> list[np.ndarray]:
    """Paths without the folder that all of them are in."""
    paths = [os.fsencode(path) for part in parts for path in part.tolist()]
    if not paths:
        return parts
    # What the first and the last path in alphabetical order share, all of them share.
    first, last = min(paths), max(paths)
    same = next((i for i in range(len(first)) if first[: i + 1] != last[: i + 1]), len(first))
    start = first[:same].rfind(os.sep.encode()) + 1
    shortened = np.array([path[start:] for path in paths], np.bytes_)
    return np.split(shortened, np.cumsum([len(part) for part in parts])[:-1])

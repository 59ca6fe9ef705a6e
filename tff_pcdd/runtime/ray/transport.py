"""Values on their way between the driver and the actors of the runtime `ray`.

Values travel as nested tuples and lists of NumPy arrays, without names of fields. Large arrays of
clients are sent with a hash of their contents as a name. Who has received or sent such an array
keeps it, so later it is enough to send the name.
"""

import collections
import dataclasses
import hashlib
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_pcdd.runtime import _values

# Smaller arrays are sent each time: a name would not be much shorter.
_SMALLEST_NAMED_BYTES = 1024


@dataclasses.dataclass(frozen=True, eq=False)
class Named:
    """A large array.

    Attributes:
        name: hash of its contents, shape and dtype.
        array: the array; None if the receiver has it.
    """

    name: bytes
    array: np.ndarray | None = None


def encode(value: Any, type_spec: tff.Type) -> Any:
    """Converts an argument to nested tuples and lists.

    Raises:
        TypeError: if the value does not have the type's structure.
    """
    match type_spec:
        case tff.StructType():
            return tuple(encode(*field) for field in _values.fields(value, type_spec))
        case tff.FederatedType() if not type_spec.all_equal:
            return [encode(member, type_spec.member) for member in value]
        case tff.FederatedType():
            return encode(value, type_spec.member)
        case tff.SequenceType() if isinstance(value, tf.data.Dataset):
            return list(value.as_numpy_iterator())
    return value.numpy() if isinstance(value, tf.Tensor | tf.Variable) else value


def decode(value: Any, type_spec: tff.Type) -> Any:
    """Converts nested tuples and lists to the Python containers of a result type."""
    return tff.types.type_to_py_container(_to_structs(value, type_spec), type_spec)


def _to_structs(value: Any, type_spec: tff.Type) -> Any:
    match type_spec:
        case tff.StructType():
            return _values.struct(_to_structs, value, type_spec)
        case tff.FederatedType() if not type_spec.all_equal:
            return [_to_structs(member, type_spec.member) for member in value]
        case tff.FederatedType():
            return _to_structs(value, type_spec.member)
    return value


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """Applies a function to the leaves of nested tuples and lists."""
    if isinstance(value, tuple | list):
        return type(value)([map_leaves(function, field) for field in value])
    return function(value)


def num_bytes(value: Any) -> int:
    """The size of a value when it is sent."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return len(head) + sum(buffer.raw().nbytes for buffer in buffers)


class Names:
    """Names arrays by their contents; those that arrived with a name are not hashed again."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref, bytes]] = {}

    def named(self, leaf: Any) -> Any:
        """A large array with its name; any other leaf as it is."""
        if not isinstance(leaf, np.ndarray) or leaf.nbytes < _SMALLEST_NAMED_BYTES:
            return leaf
        if leaf.dtype.hasobject:
            return leaf
        known = self._known.get(id(leaf))
        if known is not None and known[0]() is leaf:
            return Named(known[1], leaf)
        return Named(name_of(leaf), leaf)

    def remember(self, leaf: Any) -> Any:
        """A copy of an array. That of a `Named` cannot be changed, so its name stays known."""
        if isinstance(leaf, np.ndarray):
            return np.array(leaf)
        if not isinstance(leaf, Named):
            return leaf
        array = np.array(leaf.array)
        array.flags.writeable = False
        identity = id(array)
        reference = weakref.ref(array, lambda _: self._known.pop(identity, None))
        self._known[identity] = reference, leaf.name
        return array


def name_of(array: np.ndarray) -> bytes:
    """Hash of the contents, the shape and the dtype of an array."""
    digest = hashlib.sha256(f"{array.dtype.str} {array.shape} ".encode())
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.digest()


class ArrayCache:
    """Arrays by name. The least recently used ones are dropped beyond a limit in bytes."""

    def __init__(self, limit: float):
        self._limit = limit
        self._arrays: collections.OrderedDict[bytes, np.ndarray] = collections.OrderedDict()
        self._bytes = 0

    def get(self, name: bytes) -> np.ndarray | None:
        """The array, if it is here."""
        array = self._arrays.get(name)
        if array is not None:
            self._arrays.move_to_end(name)
        return array

    def add(self, name: bytes, array: np.ndarray) -> None:
        """Keeps an array, and drops others if necessary."""
        self.drop(name)
        self._arrays[name] = array
        self._bytes += array.nbytes
        while self._bytes > self._limit:
            self.drop(next(iter(self._arrays)))

    def drop(self, name: bytes) -> None:
        """Forgets an array, if it is here."""
        array = self._arrays.pop(name, None)
        if array is not None:
            self._bytes -= array.nbytes

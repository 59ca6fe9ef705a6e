"""What runtimes make from computations: their translation, and a cache."""

import collections
import hashlib
import threading
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

import tensorflow_federated as tff

from tff_pcdd.runtime import _interpreter, _native

T = TypeVar("T")

_COMPUTATIONS_KEPT = 64


class Computations(Generic[T]):
    """A cache of what is made from computations."""

    def __init__(self, make: Callable[[tff.framework.ConcreteComputation], T]):
        self._make = make
        self._by_object: dict[int, tuple[weakref.ref, T]] = {}
        self._by_content: collections.OrderedDict[bytes, T] = collections.OrderedDict()
        self._lock = threading.RLock()

    def get(self, computation: tff.framework.ConcreteComputation) -> T:
        """What `make` returns for a computation."""
        # By identity first, because TFF compares computations by their whole content.
        identity = id(computation)
        known = self._by_object.get(identity)
        if known is not None and known[0]() is computation:
            return known[1]
        proto = tff.framework.ConcreteComputation.get_proto(computation)
        content = hashlib.sha256(proto.SerializeToString(deterministic=True)).digest()
        with self._lock:
            made = self._by_content.pop(content, None) or self._make(computation)
            self._by_content[content] = made
            while len(self._by_content) > _COMPUTATIONS_KEPT:
                self._by_content.popitem(last=False)
        reference = weakref.ref(computation, lambda _: self._by_object.pop(identity, None))
        self._by_object[identity] = (reference, made)
        return made


def translate(
    computation: tff.framework.ConcreteComputation, on_host: bool
) -> _interpreter.Evaluate:
    """Translates a computation for the in-process runtime, `on_host` if that has no GPU."""
    if on_host:
        # TFF's compiler would also optimize all graphs, which takes half of the time of a first
        # round and is done again when they are run.
        block = _native.without_intrinsics(computation)
        return _interpreter.translate(tff.framework.to_call_dominant(block))
    # This inlines functions, without which GPUs could not be given data sets.
    return _interpreter.translate(_native.compile_for_import(computation).to_building_block())

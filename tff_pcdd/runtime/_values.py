"""Representation of values in the in-process runtime, and conversion from and to Python.

TFF type              representation
tensor                `tf.Tensor`
sequence              scalar `tf.Tensor` of dtype variant
structure             `tuple`; the names are part of the type
function              callable of (run, argument)
placed at the server  the value
placed at clients     `list`, one value per client; `AllEqual` if the type is all-equal
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_pcdd.runtime import _tff_private


@dataclasses.dataclass(frozen=True)
class AllEqual:
    """The same value at every client."""

    value: Any

    def __getitem__(self, client: int) -> Any:
        return self.value


def from_python(value: Any, type_spec: tff.Type) -> Any:
    """Converts an argument; tensors and data sets are neither copied nor serialized.

    Raises:
        TypeError: if the value does not have the type.
        NotImplementedError: if it is a reference to data that the runtime would have to fetch.
    """
    match value, type_spec:
        case _tff_private.ComputationProto(), _:
            raise NotImplementedError(
                "The in-process runtime cannot fetch data; pass the data instead."
            )
        case _, tff.TensorType():
            return _tensor(value, type_spec)
        case _, tff.StructType():
            return tuple(from_python(*field) for field in fields(value, type_spec))
        case _, tff.SequenceType():
            return tf.data.experimental.to_variant(_dataset(value, type_spec))
        case _, tff.FederatedType() if not type_spec.all_equal:
            return [from_python(member, type_spec.member) for member in value]
        case _, tff.FederatedType():
            member = from_python(value, type_spec.member)
            return AllEqual(member) if type_spec.placement is tff.CLIENTS else member
    raise TypeError(f"A computation cannot be called with a value of type {type_spec}.")


def fields(value: Any, type_spec: tff.StructType) -> list[tuple[Any, tff.Type]]:
    """The fields of a container, each with its type.

    Raises:
        TypeError: if the container does not have the type's number of fields, or other names.
    """
    types = tff.structure.to_elements(type_spec)
    # For most containers, what the last line would do, which is slow.
    if isinstance(value, dict):
        found = list(value.items())
    elif isinstance(value, (list, tuple)):
        names = getattr(value, "_fields", [None] * len(value))
        found = list(zip(names, value, strict=True))
    else:
        found = tff.structure.to_elements(tff.structure.from_container(value))
    if len(found) != len(types) or any(
        name not in (None, expected) for (name, _), (expected, _) in zip(found, types, strict=True)
    ):
        raise TypeError(f"Expected a value of type {type_spec}, found {value!r}.")
    return [(field, t) for (_, field), (_, t) in zip(found, types, strict=True)]


def to_arrays(value: Any) -> Any:
    """Converts a result to nested tuples and lists of NumPy arrays, without the names."""
    match value:
        case tuple():
            return tuple(map(to_arrays, value))
        case list():
            return list(map(to_arrays, value))
        case AllEqual():
            return to_arrays(value.value)
    return value.numpy()


def to_python(value: Any, type_spec: tff.Type) -> Any:
    """Converts a result, as TFF's own runtimes do, to NumPy values in `tff.structure.Struct`s."""
    match type_spec:
        case tff.TensorType():
            return value.numpy()
        case tff.StructType():
            return struct(to_python, value, type_spec)
        case tff.SequenceType():
            dataset = to_dataset(value, type_spec)
            return _tff_private.coerce_dataset(dataset, type_spec.element)
        case tff.FederatedType() if not type_spec.all_equal:
            return [to_python(member, type_spec.member) for member in value]
        case tff.FederatedType():
            member = value.value if isinstance(value, AllEqual) else value
            return to_python(member, type_spec.member)
    raise TypeError(f"A computation cannot return a value of type {type_spec}.")


def to_dataset(variant: tf.Tensor, type_spec: tff.SequenceType) -> tf.data.Dataset:
    """The data set of a sequence; its elements are (ordered dicts or tuples of) tensors."""
    structure = _tff_private.type_to_tf_structure(type_spec.element)
    return tf.data.experimental.from_variant(variant, structure)


def from_element(element: Any, type_spec: tff.Type) -> Any:
    """Converts an element of a data set from `to_dataset`."""
    if isinstance(type_spec, tff.TensorType):
        return element
    return tuple(
        from_element(element[index if name is None else name], field_type)
        for index, (name, field_type) in enumerate(tff.structure.iter_elements(type_spec))
    )


def to_element(value: Any, type_spec: tff.Type) -> Any:
    """Converts a value to an element of a data set, the reverse of `from_element`."""
    if isinstance(type_spec, tff.TensorType):
        return value
    return tff.types.type_to_py_container(struct(to_element, value, type_spec), type_spec)


def struct(convert, value: tuple, type_spec: tff.StructType) -> tff.structure.Struct:
    """The fields of a structure, converted by `convert(field, type)`, with their names."""
    types = tff.structure.iter_elements(type_spec)
    return tff.structure.Struct(
        [(name, convert(field, t)) for field, (name, t) in zip(value, types, strict=True)]
    )


def _tensor(value: Any, type_spec: tff.TensorType) -> tf.Tensor:
    """Converts to a tensor, and casts to a wider dtype where that is lossless."""
    if (
        isinstance(value, (np.ndarray, np.generic))
        and value.dtype == type_spec.dtype
        and _fits(value.shape, type_spec.shape)
    ):
        return tf.constant(value)  # Much faster than the rest for small tensors.
    wanted = tf.as_dtype(type_spec.dtype.type)
    if isinstance(value, tf.Variable):
        value = value.read_value()
    found = getattr(value, "dtype", None)
    if found is not None and found != wanted and wanted is not tf.string:
        if not np.can_cast(tf.as_dtype(found).as_numpy_dtype, wanted.as_numpy_dtype):
            raise TypeError(f"Expected a value of type {type_spec}, found one of {found!r}.")
        value = tf.cast(value, wanted)
    if not isinstance(value, tf.Tensor):
        value = tf.constant(value, wanted)
    # Equality is checked first, because `tf.TensorShape` is slow and a cohort may have thousands
    # of tensors.
    shape = tuple(value.shape)
    if shape != type_spec.shape and not value.shape.is_compatible_with(type_spec.shape):
        raise TypeError(f"Expected a value of type {type_spec}, found shape {shape}.")
    return value


def _fits(found: tuple[int, ...], wanted: Sequence[int | None] | None) -> bool:
    """Whether a shape is one of those that a type permits."""
    return wanted is not None and (
        found == wanted
        or (
            len(found) == len(wanted)
            and all(size in (None, own) for own, size in zip(found, wanted, strict=True))
        )
    )


def _dataset(value: Any, type_spec: tff.SequenceType) -> tf.data.Dataset:
    if isinstance(value, list):
        return _tff_private.make_dataset(None, value, type_spec.element)
    if not isinstance(value, tf.data.Dataset):
        raise TypeError(f"Expected a tf.data.Dataset or a list for {type_spec}, found {value!r}.")
    found = tff.SequenceType(tff.types.tensorflow_to_type(value.element_spec))
    if not type_spec.is_assignable_from(found):
        raise TypeError(f"Expected a data set of type {type_spec}, found {found}.")
    return value

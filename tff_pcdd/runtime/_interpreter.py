"""Evaluates a compiled TFF computation, which is a tree of building blocks.

`translate` turns the tree once into nested Python closures, which can be evaluated any number of
times. A closure takes the run and the values of the names in scope. The module `_values` describes
the representation of values.
"""

import collections
import hashlib
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import tensorflow as tf
import tensorflow_federated as tff

from tff_pcdd.runtime import _graphs, _tf_private, _tff_private, _values


class Run(Protocol):
    """The clients of an evaluation, and the device on which its current part runs."""

    num_clients: int
    device: str
    cancel: _graphs.Cancellation

    def for_each_client(self, work: Callable[["Run", int], Any]) -> list:
        """Calls `work` for each client, with a run on the device assigned to that client.

        Returns:
            The results in the order of the clients.
        """


Scope = Mapping[str, Any]
Function = Callable[[Run, Any], Any]
Evaluate = Callable[[Run, Scope], Any]


def translate(block: tff.framework.ComputationBuildingBlock) -> Evaluate:
    """Translates a building block.

    Raises:
        NotImplementedError: if it contains something that this runtime does not support.
    """
    if type(block) not in _TRANSLATORS:
        raise NotImplementedError(f"The in-process runtime cannot evaluate {type(block).__name__}.")
    return _TRANSLATORS[type(block)](block)


def _reference(block) -> Evaluate:
    name = block.name
    return lambda run, scope: scope[name]


def _selection(block) -> Evaluate:
    source, index = translate(block.source), block.as_index()
    return lambda run, scope: source(run, scope)[index]


def _struct(block) -> Evaluate:
    fields = [translate(field) for _, field in tff.structure.iter_elements(block)]
    return lambda run, scope: tuple([field(run, scope) for field in fields])


def _call(block) -> Evaluate:
    function = translate(block.function)
    if block.argument is None:
        return lambda run, scope: function(run, scope)(run, None)
    argument = translate(block.argument)
    return lambda run, scope: function(run, scope)(run, argument(run, scope))


def _lambda(block) -> Evaluate:
    result, parameter = translate(block.result), block.parameter_name
    outer = _names_in(block.result)

    def evaluate(run, scope):
        captured = {name: value for name, value in scope.items() if name in outer}
        return lambda run, argument: result(run, {**captured, parameter: argument})

    return evaluate


def _block(block) -> Evaluate:
    """Evaluates the locals in order, skips unused ones, and drops each after its last use.

    Dropping them saves memory: a local may contain the weights of all clients.
    """
    last_use = {}
    for index, (_, value) in enumerate([*block.locals, ("", block.result)]):
        last_use.update(dict.fromkeys(_names_in(value), index))
    steps = [
        (name, translate(value), [n for n, _ in block.locals if last_use.get(n) == index])
        for index, (name, value) in enumerate(block.locals)
        if last_use.get(name, -1) > index
    ]
    result = translate(block.result)

    def evaluate(run, scope):
        scope = dict(scope)
        for name, value, finished in steps:
            scope[name] = value(run, scope)
            for other in finished:
                scope.pop(other, None)
        return result(run, scope)

    return evaluate


def _names_in(block) -> set[str]:
    """All names that a building block refers to."""
    if isinstance(block, tff.framework.Reference):
        return {block.name}
    return set().union(*map(_names_in, block.children()))


def _literal(block) -> Evaluate:
    value = _values.from_python(block.value, block.type_signature)
    return lambda run, scope: value


def _placement(block) -> Evaluate:
    return lambda run, scope: block.uri


def _data(block) -> Evaluate:
    raise NotImplementedError(
        f"The in-process runtime cannot fetch data ({block.type_signature}); pass the data instead."
    )


def _intrinsic(block) -> Evaluate:
    if block.uri not in _INTRINSICS:
        raise NotImplementedError(f"The in-process runtime does not support {block.uri!r}.")
    intrinsic, type_signature = _INTRINSICS[block.uri], block.type_signature

    def function(run, argument):
        return intrinsic(run, argument, type_signature)

    return lambda run, scope: function


def _compiled(block) -> Evaluate:
    kind = block.proto.WhichOneof("computation")
    if kind != "tensorflow":
        raise NotImplementedError(f"The in-process runtime only runs TensorFlow, not {kind!r}.")
    function = TensorFlowFunction.of(block)
    return lambda run, scope: function


_TRANSLATORS = {
    tff.framework.Block: _block,
    tff.framework.Call: _call,
    tff.framework.CompiledComputation: _compiled,
    tff.framework.Data: _data,
    tff.framework.Intrinsic: _intrinsic,
    tff.framework.Lambda: _lambda,
    tff.framework.Literal: _literal,
    tff.framework.Placement: _placement,
    tff.framework.Reference: _reference,
    tff.framework.Selection: _selection,
    tff.framework.Struct: _struct,
}


# Equal graphs occur in several computations; an entry lives as long as one of them uses it.
_functions: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
_functions_lock = threading.Lock()
# The newest ones live on, for the next run of a comparison: importing and optimizing its graphs
# would take most of the time of its first round. A run has about 20 functions.
_recent: collections.OrderedDict[bytes, "TensorFlowFunction"] = collections.OrderedDict()
_MAX_RECENT = 32


class TensorFlowFunction:
    """A TensorFlow computation, with one imported graph for each concurrent call on a device.

    XLA compiles a graph once, so contexts that differ in TF32 or determinism have graphs of their
    own.

    Overlapping calls never share an imported graph, because kernels of TensorFlow's oneDNN build
    keep unprotected state between calls. With shared graphs, 4 of 4,300 runs of three rounds of
    MOON, two clients at a time, had wrong gradients on one client; with separate graphs, none of
    7,400.
    """

    def __init__(self, proto: _tff_private.TensorFlowProto, type_signature: tff.FunctionType):
        self._proto = proto
        self._parameters = _tensor_specs(type_signature.parameter)
        self._result = _skeleton(type_signature.result)
        self._idle: dict[tuple, list[_graphs.Graph]] = {}
        self._import_lock = threading.Lock()

    @classmethod
    def of(cls, block: tff.framework.CompiledComputation) -> "TensorFlowFunction":
        """The function of a building block; equal blocks share one function."""
        canonical = _graphs.with_canonical_names(block.proto.tensorflow)
        proto = block.proto.tensorflow if canonical is None else canonical
        content = proto.SerializeToString(deterministic=True)
        content += block.proto.type.SerializeToString(deterministic=True)
        key = hashlib.sha256(content).digest()
        with _functions_lock:
            function = _functions.get(key)
            if function is None:
                function = _functions[key] = cls(proto, block.type_signature)
            if canonical is not None:
                _recent[key] = function
                _recent.move_to_end(key)
                if len(_recent) > _MAX_RECENT:
                    _recent.popitem(last=False)
        return function

    def __call__(self, run: Run, argument: Any) -> Any:
        tensors: list[tf.Tensor] = []
        if argument is not None:
            _flatten(argument, tensors)
        idle = self._idle.setdefault((run.device, *_tf_private.numerics()), [])
        try:
            graph = idle.pop()
        except IndexError:
            graph = self._import(run.device)
        try:
            return _fill(self._result, iter(graph(tensors, run.cancel)))
        finally:
            idle.append(graph)

    def _import(self, device: str) -> _graphs.Graph:
        # `init_scope` leaves the caller's graph, which may be under construction.
        with self._import_lock, tf.init_scope():
            return _graphs.Graph(self._proto, self._parameters, device)


def _tensor_specs(type_spec: tff.Type | None) -> list[tf.TensorSpec]:
    match type_spec:
        case None:
            return []
        case tff.StructType():
            return [spec for field in type_spec for spec in _tensor_specs(field)]
        case tff.SequenceType():
            return [tf.TensorSpec([], tf.variant)]
    return [tf.TensorSpec(type_spec.shape, type_spec.dtype.type)]


def _skeleton(type_spec: tff.Type) -> tuple | None:
    """The nesting of a type, computed once because walking through TFF types is slow."""
    if isinstance(type_spec, tff.StructType):
        return tuple(_skeleton(field) for field in type_spec)
    return None


def _flatten(value: Any, tensors: list) -> None:
    if isinstance(value, tuple):
        for field in value:
            _flatten(field, tensors)
    else:
        tensors.append(value)


def _fill(skeleton: tuple | None, tensors) -> Any:
    return next(tensors) if skeleton is None else tuple([_fill(f, tensors) for f in skeleton])


def _at_all_clients(run, value, _):
    return _values.AllEqual(value)


def _at_server(run, value, _):
    return value


def _federated_eval_at_clients(run, function: Function, _):
    return run.for_each_client(lambda run, client: function(run, None))


def _federated_eval_at_server(run, function: Function, _):
    return function(run, None)


def _federated_map(run, argument, _):
    function, values = argument
    return run.for_each_client(lambda run, client: function(run, values[client]))


def _federated_map_all_equal(run, argument, _):
    function, values = argument
    return _values.AllEqual(function(run, values.value))


def _federated_apply(run, argument, _):
    function, value = argument
    return function(run, value)


def _federated_aggregate(run, argument, _):
    # Sequential, in the order of the clients: a sum of floats depends on the order of its terms.
    values, total, accumulate, _merge, report = argument
    for client in range(run.num_clients):
        total = accumulate(run, (total, values[client]))
    return report(run, total)


def _federated_select(run, argument, type_signature):
    keys, _max_key, value, select = argument
    element = type_signature.result.member.element

    def slices(run, client):
        chosen = [select(run, (value, key)) for key in tf.unstack(keys[client])]
        elements = [_values.to_python(c, element) for c in chosen]
        return _values.from_python(elements, type_signature.result.member)

    return run.for_each_client(slices)


def _federated_zip_at_clients(run, argument, type_signature):
    def at(client, value, type_spec):
        if isinstance(type_spec, tff.FederatedType):
            return value[client]
        return tuple([at(client, *pair) for pair in zip(value, type_spec, strict=True)])

    if type_signature.result.all_equal:
        return _values.AllEqual(at(0, argument, type_signature.parameter))
    return [at(c, argument, type_signature.parameter) for c in range(run.num_clients)]


def _sequence_map(run, argument, type_signature):
    function, variant = argument
    source, target = type_signature.parameter[1], type_signature.result

    def map_element(*elements):
        # `Dataset.map` passes the fields of a tuple as separate arguments.
        element = elements if _is_spread(source.element) else elements[0]
        result = function(run, _values.from_element(element, source.element))
        return _values.to_element(result, target.element)

    dataset = _values.to_dataset(variant, source).map(map_element)
    return tf.data.experimental.to_variant(dataset)


def _is_spread(type_spec: tff.Type) -> bool:
    return isinstance(type_spec, tff.StructType) and not tff.structure.name_list(type_spec)


def _sequence_reduce(run, argument, type_signature):
    variant, total, accumulate = argument
    source = type_signature.parameter[0]
    for element in _values.to_dataset(variant, source):
        total = accumulate(run, (total, _values.from_element(element, source.element)))
    return total


def _sequence_sum(run, variant, type_signature):
    source = type_signature.parameter
    total = [tf.zeros(s.shape, s.dtype) for s in _tensor_specs(source.element)]
    for element in _values.to_dataset(variant, source):
        tensors: list[tf.Tensor] = []
        _flatten(_values.from_element(element, source.element), tensors)
        total = [a + b for a, b in zip(total, tensors, strict=True)]
    return _fill(_skeleton(source.element), iter(total))


# TFF's compiler reduces all other intrinsics (sums, means, secure sums) to these.
_INTRINSICS = {
    "federated_aggregate": _federated_aggregate,
    "federated_apply": _federated_apply,
    "federated_broadcast": _at_all_clients,
    "federated_eval_at_clients": _federated_eval_at_clients,
    "federated_eval_at_server": _federated_eval_at_server,
    "federated_map": _federated_map,
    "federated_map_all_equal": _federated_map_all_equal,
    "federated_select": _federated_select,
    "federated_value_at_clients": _at_all_clients,
    "federated_value_at_server": _at_server,
    "federated_zip_at_clients": _federated_zip_at_clients,
    "federated_zip_at_server": _at_server,
    "sequence_map": _sequence_map,
    "sequence_reduce": _sequence_reduce,
    "sequence_sum": _sequence_sum,
}

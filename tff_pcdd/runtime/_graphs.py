"""Runs the TensorFlow graph of a TFF computation eagerly, from any number of threads.

TFF's own runtimes run such a graph in a session: variables and tables are empty at the start of
every call, `initialize_op` runs first, and only the nodes that the results depend on are run. A
TensorFlow function, on the other hand, runs all stateful ops and shares resource and function names
with the whole process. To get the behavior of a session from a function,

- nodes that the results do not depend on are removed;
- nodes that read an initialized resource get a control dependency on `initialize_op`;
- resources become anonymous, so that each call creates its own; TensorFlow counts references and
  frees them when the call ends, even with an error;
- the functions in the graph are renamed so that their names are unique.
"""

import itertools
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import NameAttrList
from tensorflow.core.framework.function_pb2 import FunctionDef
from tensorflow.python.eager import context, execute
from tensorflow.python.eager.cancellation import CancellationManager as Cancellation

from tff_pcdd.runtime._tff_private import TensorFlowProto

# TensorFlow's `ResourceHandle::ANONYMOUS_NAME`: a resource of this name is never shared.
_ANONYMOUS_NAME = b"cd2c89b7-88b7-44c8-ad83-06c2a9158347"

# Ops that create a named resource, and the ops that create the same resource without a name.
_ANONYMOUS_OPS = {
    "HashTableV2": "AnonymousHashTable",
    "IteratorV2": "AnonymousIteratorV3",
    "MutableDenseHashTableV2": "AnonymousMutableDenseHashTable",
    "MutableHashTableOfTensorsV2": "AnonymousMutableHashTableOfTensors",
    "MutableHashTableV2": "AnonymousMutableHashTable",
}
_NAMING_ATTRIBUTES = ("container", "shared_name", "use_node_name_sharing")

_import_number = itertools.count(1)


class Graph:
    """A graph that is placed on one device and can be called with tensors.

    Example:
        graph = Graph(computation_proto.tensorflow, parameter_specs, "/device:CPU:0")
        results = graph([tf.constant(1.0)])
    """

    def __init__(self, proto: TensorFlowProto, parameters: Sequence[tf.TensorSpec], device: str):
        """Imports the graph.

        Args:
            proto: the graph and its bindings, as serialized by TFF.
            parameters: one spec for each tensor of the parameter, in the order of the binding.
            device: full name of the logical device to run on.

        Raises:
            NotImplementedError: if the graph contains a resource that calls would share.
        """
        graph_def = tf.compat.v1.GraphDef()
        proto.graph_def.Unpack(graph_def)
        parameter_names = list(_tensor_names(proto.parameter))
        result_names = list(_tensor_names(proto.result))
        _keep_needed(graph_def, [_node(name) for name in result_names], proto.initialize_op)
        _make_resources_anonymous(graph_def)
        suffix = f"_{next(_import_number)}"
        names = [function.signature.name for function in graph_def.library.function]
        _rename_functions(graph_def, {name: name + suffix for name in names})
        _release_devices(graph_def, keep_cpu="CPU" not in device)
        _allow_grappler(graph_def)
        placeholders = _remove_placeholders(graph_def)

        def body(*parameters):
            with tf.device(device):
                # The only other placeholder is TFF's session token; without a session it is empty.
                inputs = {name: tf.constant("") for name in placeholders - {*parameter_names}}
                inputs |= {
                    name: tensor
                    for name, tensor in zip(parameter_names, parameters, strict=True)
                    if name in placeholders
                }
                return tf.graph_util.import_graph_def(graph_def, inputs, result_names, name="")

        # The returned object keeps the function alive in TensorFlow's context, where the functions
        # that it calls would stay for ever.
        self._function = tf.compat.v1.wrap_function(body, parameters)
        weakref.finalize(self, _remove_functions, [name + suffix for name in names]).atexit = False
        self._name = self._function.name.decode()
        self._num_results = len(result_names)
        self._device = device

    def __call__(
        self, parameters: list[tf.Tensor], cancel: Cancellation | None = None
    ) -> Sequence[tf.Tensor]:
        """Runs the graph, or adds it to the graph under construction (in `Dataset.map`).

        If `cancel` is cancelled meanwhile, it raises `tf.errors.CancelledError`.
        """
        if not self._num_results:
            return []
        if not tf.executing_eagerly():
            return self._function(*parameters)
        # Same as calling `self._function` without checking its signature, which takes longer than
        # running a small graph. TensorFlow's own API takes `cancel` from a global variable.
        eager = context.context()
        options = eager.function_call_options
        with tf.device(self._device):
            return execute.execute_with_cancellation(
                self._name,
                self._num_results,
                parameters,
                ("executor_type", "", "config_proto", options.config_proto_serialized),
                eager,
                cancel or Cancellation(),
            )


def _remove_functions(names: Iterable[str]) -> None:
    """Removes functions from TensorFlow's context."""
    for name in names:
        if context.context().has_function(name):
            context.context().remove_function(name)


def _tensor_names(binding: TensorFlowProto.Binding) -> Iterator[str]:
    """The tensor names of a binding, in order."""
    match binding.WhichOneof("binding"):
        case "tensor":
            yield binding.tensor.tensor_name
        case "sequence":
            yield binding.sequence.variant_tensor_name
        case "struct":
            for element in binding.struct.element:
                yield from _tensor_names(element)


def _node(name: str) -> str:
    """The node name in the name of an input or tensor: `^node`, `node` or `node:1`."""
    return name.removeprefix("^").partition(":")[0]


def _all_nodes(graph_def: tf.compat.v1.GraphDef) -> Iterable[tf.compat.v1.NodeDef]:
    bodies = (function.node_def for function in graph_def.library.function)
    return itertools.chain(graph_def.node, *bodies)


def _keep_needed(
    graph_def: tf.compat.v1.GraphDef, results: Iterable[str], initialize_op: str
) -> None:
    """Removes the nodes that are not needed, and runs `initialize_op` before its dependants."""
    nodes = {node.name: node for node in graph_def.node}

    def ancestors(names):
        found, pending = set(), list(names)
        while pending:
            name = pending.pop()
            if name not in found:
                found.add(name)
                pending.extend(map(_node, nodes[name].input))
        return found

    initialization = ancestors([_node(initialize_op)] if initialize_op else [])
    needed = ancestors(results)
    for name in needed - initialization:
        node = nodes[name]
        producers = initialization.intersection(map(_node, node.input))
        # No control dependency for constants: it would prevent TensorFlow from folding them.
        if any(nodes[producer].op != "Const" for producer in producers):
            node.input.append(f"^{_node(initialize_op)}")
    kept = needed | initialization
    _delete(graph_def.node, lambda node: node.name not in kept)
    for node in graph_def.node:
        node.attr.pop("_class", None)  # Colocation with nodes that may have been removed.


def _make_resources_anonymous(graph_def: tf.compat.v1.GraphDef) -> None:
    for node in _all_nodes(graph_def):
        if node.op == "VarHandleOp":
            node.attr["shared_name"].s = _ANONYMOUS_NAME
        elif node.op in _ANONYMOUS_OPS:
            node.op = _ANONYMOUS_OPS[node.op]
            for attribute in _NAMING_ATTRIBUTES:
                node.attr.pop(attribute, None)
        elif "shared_name" in node.attr:
            raise NotImplementedError(
                f"Op {node.op!r} (node {node.name!r}) has named state, which clients that run at "
                "the same time would share. Use runtime `tff` for this computation."
            )


def with_canonical_names(proto: TensorFlowProto) -> TensorFlowProto | None:
    """The same computation, with functions that are named and sorted by their first use.

    TensorFlow numbers functions through the whole process. Two graphs that are traced from the same
    code with the same constants differ in nothing but these numbers.

    Args:
        proto: the graph and its bindings.

    Returns:
        A copy without unused functions; None if a graph that is called by several computations may
        return something else than a graph of their own. So it is with ops that have a seed as
        attribute: each of their calls continues a random sequence. Also None if TensorFlow may
        replace a function by one that no node refers to, as it does for Keras' LSTM on GPUs.
    """
    graph_def = tf.compat.v1.GraphDef()
    proto.graph_def.Unpack(graph_def)
    if graph_def.library.gradient or any("seed" in node.attr for node in _all_nodes(graph_def)):
        return None
    if any("api_implements" in function.attr for function in graph_def.library.function):
        return None
    library = {function.signature.name: function for function in graph_def.library.function}
    names: dict[str, str] = {}
    pending = [graph_def.node]
    for nodes in pending:  # It grows while it is read.
        for node in nodes:
            for name in (node.op, *(function.name for function in _references(node.attr))):
                if name in library and name not in names:
                    names[name] = f"function_{len(names)}"
                    pending.append(library[name].node_def)
    used = type(graph_def.library)(function=[library[name] for name in names])
    graph_def.library.CopyFrom(used)
    for function in graph_def.library.function:
        _rename_unused_arguments(function)
    _rename_functions(graph_def, names)
    renamed = TensorFlowProto()
    renamed.CopyFrom(proto)
    renamed.graph_def.Pack(graph_def, deterministic=True)
    return renamed


def _rename_unused_arguments(function: FunctionDef) -> None:
    """Numbers arguments that are not used; TensorFlow names those of loops after the function."""
    used = {_node(name) for node in function.node_def for name in node.input}
    used.update(map(_node, function.ret.values()))
    for index, argument in enumerate(function.signature.input_arg):
        if argument.name not in used:
            argument.name = f"unused_argument_{index}"


def _references(attributes) -> Iterator[NameAttrList]:
    """The references to functions in the attributes of a node, in the order of their names."""
    for _, attribute in sorted(attributes.items()):
        functions = [attribute.func] if attribute.HasField("func") else []
        for function in (*functions, *attribute.list.func):
            yield function
            yield from _references(function.attr)


def _rename_functions(graph_def: tf.compat.v1.GraphDef, names: Mapping[str, str]) -> None:
    """Renames the functions of a graph, including all references."""
    for node in _all_nodes(graph_def):
        node.op = names.get(node.op, node.op)
        for function in _references(node.attr):
            function.name = names.get(function.name, function.name)
    library = graph_def.library
    for function in library.function:
        function.signature.name = names[function.signature.name]
        # They refer to functions that only the gradient of a function not imported would need.
        for attribute in ("forward_function_name", "backward_function_name"):
            function.attr.pop(attribute, None)
    for gradient in library.gradient:
        gradient.function_name = names.get(gradient.function_name, gradient.function_name)
        gradient.gradient_func = names.get(gradient.gradient_func, gradient.gradient_func)


def _release_devices(graph_def: tf.compat.v1.GraphDef, keep_cpu: bool) -> None:
    """Removes the device placements of the graph, optionally except those on a CPU."""
    for node in _all_nodes(graph_def):
        if node.device:
            node.device = "/device:CPU:0" if keep_cpu and "cpu" in node.device.lower() else ""


def _allow_grappler(graph_def: tf.compat.v1.GraphDef) -> None:
    """Removes the session configurations that TFF's compiler sets for the C++ worker."""
    for node in _all_nodes(graph_def):
        if node.op in ("PartitionedCall", "StatefulPartitionedCall"):
            node.attr["config_proto"].s = b""


def _remove_placeholders(graph_def: tf.compat.v1.GraphDef) -> set[str]:
    """Removes the placeholders, and returns the names of those tensors that other nodes use."""
    placeholders = {node.name for node in graph_def.node if node.op == "Placeholder"}
    _delete(graph_def.node, lambda node: node.name in placeholders)
    used = set()
    for node in graph_def.node:
        _delete(node.input, lambda name: name[0] == "^" and name[1:] in placeholders)
        used |= placeholders.intersection(map(_node, node.input))
    return {f"{name}:0" for name in used}


def _delete(repeated, condition) -> None:
    """Deletes the elements of a repeated field for which the condition is true."""
    for index in reversed(range(len(repeated))):
        if condition(repeated[index]):
            del repeated[index]

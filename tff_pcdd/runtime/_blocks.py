"""Takes federated computations apart and puts them together, as trees of building blocks."""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow_federated as tff


def client_block(computation) -> tuple[str, tff.framework.Block] | None:
    """Parameter name and body of a computation with client arguments; None if it has none."""
    signature = computation.type_signature
    if signature.parameter is None or not any(map(is_at_clients, leaf_types(signature.parameter))):
        return None
    if not all(isinstance(leaf, tff.FederatedType) for leaf in leaf_types(signature.result)):
        return None
    function = computation.to_building_block()
    if not isinstance(function, tff.framework.Lambda):
        return None
    body = function.result
    if not isinstance(body, tff.framework.Block):
        body = tff.framework.Block([], body)
    return function.parameter_name, body


def leaf_types(type_spec: tff.Type):
    """Yields the leaves of nested struct types."""
    if isinstance(type_spec, tff.StructType):
        for _, element in tff.structure.iter_elements(type_spec):
            yield from leaf_types(element)
    else:
        yield type_spec


def is_at_server(type_spec: tff.Type) -> bool:
    return isinstance(type_spec, tff.FederatedType) and type_spec.placement is tff.SERVER


def is_at_clients(type_spec: tff.Type) -> bool:
    """Whether every client has its own value of this type."""
    return (
        isinstance(type_spec, tff.FederatedType)
        and type_spec.placement is tff.CLIENTS
        and not type_spec.all_equal
    )


def leaves(block: tff.framework.ComputationBuildingBlock, path: tuple[int, ...] = ()):
    """Yields (path, expression) for each federated value in nested structs."""
    if not isinstance(block.type_signature, tff.StructType):
        yield path, block
        return
    for i in range(len(block.type_signature)):
        is_struct = isinstance(block, tff.framework.Struct)
        element = block[i] if is_struct else tff.framework.Selection(block, index=i)
        yield from leaves(element, (*path, i))


def at_path(path: tuple[int, ...], value: Any) -> Any:
    return functools.reduce(lambda value, index: value[index], path, value)


def selected(source, index: int) -> tff.framework.Selection:
    return tff.framework.Selection(source, index=index)


def unused(type_spec: tff.Type) -> tff.framework.Reference:
    """An unbound reference in place of a value that nothing depends on."""
    return tff.framework.Reference("unused", type_spec)


def used(computation: tff.framework.ConcreteComputation) -> list[int]:
    """Which fields of the first field of its parameter a computation uses."""
    function = computation.to_building_block()
    return sorted(
        {
            selection.as_index()
            for selection in find(function.result, tff.framework.Selection)
            if isinstance(selection.source, tff.framework.Selection)
            and selection.source.as_index() == 0
            and isinstance(selection.source.source, tff.framework.Reference)
            and selection.source.source.name == function.parameter_name
        }
    )


def find(block: tff.framework.ComputationBuildingBlock, kind: type) -> list:
    """All parts of an expression that are instances of `kind`."""
    found = []

    def look(part):
        if isinstance(part, kind):
            found.append(part)
        return part, False

    tff.framework.transform_postorder(block, look)
    return found


def references(block: tff.framework.ComputationBuildingBlock) -> set[str]:
    return {reference.name for reference in find(block, tff.framework.Reference)}


def sums_in(block: tff.framework.ComputationBuildingBlock) -> list[str]:
    """The URIs of the intrinsics in an expression that move values from clients to the server."""

    def has(type_spec, placement):
        return any(
            isinstance(leaf, tff.FederatedType) and leaf.placement is placement
            for leaf in leaf_types(type_spec)
        )

    return [
        intrinsic.uri
        for intrinsic in find(block, tff.framework.Intrinsic)
        if isinstance(intrinsic.type_signature, tff.FunctionType)
        and intrinsic.type_signature.parameter is not None
        and has(intrinsic.type_signature.parameter, tff.CLIENTS)
        and has(intrinsic.type_signature.result, tff.SERVER)
    ]


def computation(parameter, type_spec, values, results) -> tff.framework.ConcreteComputation:
    """The computation `parameter → results`; unused `values` are removed.

    The values are (name, expression) pairs, of which each may refer to earlier ones. The results
    are an expression, or a nested list of expressions.
    """

    def struct(expression):
        if isinstance(expression, list):
            return tff.framework.Struct([struct(element) for element in expression])
        return expression

    body = tff.framework.Block(values, struct(results))
    return tff.framework.ConcreteComputation.from_building_block(
        tff.framework.to_call_dominant(tff.framework.Lambda(parameter, type_spec, body))
    )


def _call(uri: str, arguments: Sequence, result_type: tff.Type) -> tff.framework.Call:
    argument = tff.framework.Struct(arguments)
    function_type = tff.FunctionType(argument.type_signature, result_type)
    return tff.framework.Call(tff.framework.Intrinsic(uri, function_type), argument)


def apply_at_server(function, argument) -> tff.framework.Call:
    result_type = tff.FederatedType(function.type_signature.result, tff.SERVER)
    return _call(tff.framework.FEDERATED_APPLY.uri, [function, argument], result_type)


def zip_at_server(first, second) -> tff.framework.Call:
    members = [value.type_signature.member for value in (first, second)]
    result_type = tff.FederatedType(tff.StructType(members), tff.SERVER)
    return _call(tff.framework.FEDERATED_ZIP_AT_SERVER.uri, [first, second], result_type)


def without_report(aggregate: tff.framework.Call) -> tff.framework.Call:
    """A federated sum that returns its accumulator, so that partial sums can be merged."""
    value, zero, accumulate, merge, _ = aggregate.argument
    accumulator_type = merge.type_signature.result
    identity = tff.framework.Lambda(
        "accumulator",
        accumulator_type,
        tff.framework.Reference("accumulator", accumulator_type),
    )
    # Taken from the intrinsic, whose type also accepts values that are equal at all clients.
    *types, _ = (
        t for _, t in tff.structure.iter_elements(aggregate.function.type_signature.parameter)
    )
    function_type = tff.FunctionType(
        tff.StructType([*types, identity.type_signature]),
        tff.FederatedType(accumulator_type, tff.SERVER),
    )
    return tff.framework.Call(
        tff.framework.Intrinsic(tff.framework.FEDERATED_AGGREGATE.uri, function_type),
        tff.framework.Struct([value, zero, accumulate, merge, identity]),
    )

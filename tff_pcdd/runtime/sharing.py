"""Splits a federated computation into two, so that several workers can share its clients.

It is split before the `report` step of the sums over clients, as in TFF's mergeable form.
First, each worker computes `local` for its share of the clients:

    argument of these clients → <partial sums, results of these clients>

Then one of the workers computes `finish`:

    <server argument, partial sums of every share> → results at the server

Unlike in TFF's mergeable form, client results are computed together with the sums and not after
them, so a round that returns client states trains every client once instead of twice.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import tensorflow_federated as tff
from absl import logging

from tff_pcdd.runtime.worker import compile_to_native


class Plan:
    """A computation in TFF's native form, split for several workers if possible.

    Attributes:
        type_signature: type of the computation.
        local: `argument → <partial sums, client results>`, or None if the computation cannot be
            split; then a single worker has to run `whole`.
        whole: the complete computation.
    """

    def __init__(self, computation: tff.framework.ConcreteComputation):
        self.whole = computation
        self.type_signature = computation.type_signature
        self.local: tff.framework.ConcreteComputation | None = None
        self._finish: dict[int, tff.framework.ConcreteComputation] = {}
        block = _client_block(computation)
        if block is None:
            return
        reason = self._cut(*block)
        if reason:
            logging.warning("A single worker runs a federated computation, because %s.", reason)

    def _cut(self, parameter: str, block: tff.framework.Block) -> str | None:
        """Splits the computation; returns the reason if that is impossible."""
        sums, early, late = [], [], []
        late_names: set[str] = set()
        for name, value in block.locals:
            is_late = not late_names.isdisjoint(_references(value))
            sums_here = _sums_in(value)
            if sums_here and is_late:
                return "it has sums over clients that depend on other sums over clients"
            if sums_here and sums_here != [tff.framework.FEDERATED_AGGREGATE.uri]:
                return f"it contains {', '.join(sums_here)}"
            if sums_here:
                sums.append((name, value))
            elif is_late:
                late.append((name, value))
            else:
                early.append((name, value))
            if sums_here or is_late:
                late_names.add(name)

        leaves = list(_leaves(block.result))
        for _, leaf in leaves:
            at_clients = leaf.type_signature.placement is tff.CLIENTS
            if at_clients and not late_names.isdisjoint(_references(leaf)):
                return "its client results depend on sums over clients"
        self._client_leaves = [
            (path, leaf) for path, leaf in leaves if leaf.type_signature.placement is tff.CLIENTS
        ]
        self._server_leaves = [
            (path, leaf) for path, leaf in leaves if leaf.type_signature.placement is tff.SERVER
        ]
        self._parameter_leaves = list(
            _leaves(tff.framework.Reference(parameter, self.type_signature.parameter))
        )
        self._parameter, self._sums, self._early, self._late = parameter, sums, early, late

        parts = [(f"{name}_part", _without_report(value)) for name, value in sums]
        local = _computation(
            parameter,
            self.type_signature.parameter,
            [*early, *parts],
            [
                [tff.framework.Reference(name, value.type_signature) for name, value in parts],
                [leaf for _, leaf in self._client_leaves],
            ],
        )
        self.local, self._sums_type = local, local.type_signature.result[0]
        return None

    def server_argument(self, argument: Any) -> list:
        """Those parts of an argument that are placed at the server, in the form `finish` takes."""
        return [
            functools.reduce(lambda value, i: value[i], path, argument)
            for path, leaf in self._parameter_leaves
            if not is_at_clients(leaf.type_signature)
        ]

    def finish(self, num_shares: int) -> tff.framework.ConcreteComputation | None:
        """The server's part, `<server argument, partial sums of every share> → results`."""
        if not self._server_leaves:
            return None
        if num_shares not in self._finish:
            self._finish[num_shares] = self._make_finish(num_shares)
        return self._finish[num_shares]

    def _make_finish(self, num_shares: int) -> tff.framework.ConcreteComputation:
        kept = [
            leaf.type_signature
            for _, leaf in self._parameter_leaves
            if not is_at_clients(leaf.type_signature)
        ]
        shares_type = tff.StructType([self._sums_type] * num_shares)
        both = tff.framework.Reference(
            "argument_and_sums", tff.StructType([tff.StructType(kept), shares_type])
        )
        argument, shares = (tff.framework.Selection(both, index=i) for i in range(2))
        position = itertools.count()

        def rebuild(type_spec):
            """The original argument, with unbound references instead of unused client values."""
            if isinstance(type_spec, tff.StructType):
                return tff.framework.Struct(
                    [(name, rebuild(t)) for name, t in tff.structure.iter_elements(type_spec)]
                )
            if is_at_clients(type_spec):
                return tff.framework.Reference("value_at_clients", type_spec)
            return tff.framework.Selection(argument, index=next(position))

        reports = []
        for k, (name, value) in enumerate(self._sums):
            _, _, _, merge, report = value.argument
            merged, *others = (
                tff.framework.Selection(tff.framework.Selection(shares, index=i), index=k)
                for i in range(num_shares)
            )
            for other in others:
                merged = _apply_at_server(merge, _zip_at_server(merged, other))
            reports.append((name, _apply_at_server(report, merged)))
        return _computation(
            both.name,
            both.type_signature,
            [
                (self._parameter, rebuild(self.type_signature.parameter)),
                *self._early,
                *reports,
                *self._late,
            ],
            [leaf for _, leaf in self._server_leaves],
        )

    def assemble(self, client_results: Sequence, server_results: Sequence) -> Any:
        """Builds the result of the whole computation.

        Args:
            client_results: for each share, the results of its clients.
            server_results: the results at the server.
        """
        values = {}
        for k, (path, _) in enumerate(self._client_leaves):
            values[path] = [value for share in client_results for value in share[k]]
        for k, (path, _) in enumerate(self._server_leaves):
            values[path] = server_results[k]

        def build(type_spec, path):
            if isinstance(type_spec, tff.FederatedType):
                return values[path]
            return tff.structure.Struct(
                [
                    (name, build(element, (*path, i)))
                    for i, (name, element) in enumerate(tff.structure.iter_elements(type_spec))
                ]
            )

        return build(self.type_signature.result, ())


def compile_plan(computation: tff.framework.ConcreteComputation) -> Plan:
    """Compiles a computation to TFF's native form and splits it."""
    return Plan(compile_to_native(computation))


def _client_block(computation) -> tuple[str, tff.framework.Block] | None:
    """Parameter name and body of a computation with client arguments; None if it has none."""
    signature = computation.type_signature
    if signature.parameter is None or not any(map(is_at_clients, _leaf_types(signature.parameter))):
        return None
    if not all(isinstance(leaf, tff.FederatedType) for leaf in _leaf_types(signature.result)):
        return None
    function = computation.to_building_block()
    if not isinstance(function, tff.framework.Lambda):
        return None
    body = function.result
    if not isinstance(body, tff.framework.Block):
        body = tff.framework.Block([], body)
    return function.parameter_name, body


def _leaf_types(type_spec: tff.Type):
    """Yields the leaves of nested struct types."""
    if isinstance(type_spec, tff.StructType):
        for _, element in tff.structure.iter_elements(type_spec):
            yield from _leaf_types(element)
    else:
        yield type_spec


def is_at_clients(type_spec: tff.Type) -> bool:
    """Whether every client has its own value of this type."""
    return (
        isinstance(type_spec, tff.FederatedType)
        and type_spec.placement is tff.CLIENTS
        and not type_spec.all_equal
    )


def _leaves(block: tff.framework.ComputationBuildingBlock, path: tuple[int, ...] = ()):
    """Yields (path, expression) for each federated value in nested structs."""
    if not isinstance(block.type_signature, tff.StructType):
        yield path, block
        return
    for i in range(len(block.type_signature)):
        is_struct = isinstance(block, tff.framework.Struct)
        element = block[i] if is_struct else tff.framework.Selection(block, index=i)
        yield from _leaves(element, (*path, i))


def _find(block: tff.framework.ComputationBuildingBlock, kind: type) -> list:
    """All parts of an expression that are instances of `kind`."""
    found = []

    def look(part):
        if isinstance(part, kind):
            found.append(part)
        return part, False

    tff.framework.transform_postorder(block, look)
    return found


def _references(block: tff.framework.ComputationBuildingBlock) -> set[str]:
    return {reference.name for reference in _find(block, tff.framework.Reference)}


def _sums_in(block: tff.framework.ComputationBuildingBlock) -> list[str]:
    """The URIs of the intrinsics in an expression that move values from clients to the server."""

    def has(type_spec, placement):
        return any(
            isinstance(leaf, tff.FederatedType) and leaf.placement is placement
            for leaf in _leaf_types(type_spec)
        )

    return [
        intrinsic.uri
        for intrinsic in _find(block, tff.framework.Intrinsic)
        if isinstance(intrinsic.type_signature, tff.FunctionType)
        and intrinsic.type_signature.parameter is not None
        and has(intrinsic.type_signature.parameter, tff.CLIENTS)
        and has(intrinsic.type_signature.result, tff.SERVER)
    ]


def _computation(parameter, type_spec, values, results) -> tff.framework.ConcreteComputation:
    """The computation `parameter → results`; unused `values` are removed.

    Args:
        parameter: name of the parameter.
        type_spec: type of the parameter.
        values: local values, (name, expression) pairs; each may refer to earlier ones.
        results: an expression, or a nested list of expressions.
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


def _apply_at_server(function, argument) -> tff.framework.Call:
    result_type = tff.FederatedType(function.type_signature.result, tff.SERVER)
    return _call(tff.framework.FEDERATED_APPLY.uri, [function, argument], result_type)


def _zip_at_server(first, second) -> tff.framework.Call:
    members = [value.type_signature.member for value in (first, second)]
    result_type = tff.FederatedType(tff.StructType(members), tff.SERVER)
    return _call(tff.framework.FEDERATED_ZIP_AT_SERVER.uri, [first, second], result_type)


def _without_report(aggregate: tff.framework.Call) -> tff.framework.Call:
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

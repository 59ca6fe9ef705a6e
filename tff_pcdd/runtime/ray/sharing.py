"""Splits a federated computation into three, so that several workers can share its clients.

It is split where values go from the server to the clients, and before the `report` step of the sums
over clients, as in TFF's mergeable form. First, the server's own process computes `before`:

    server argument → values that clients need from the server

Then, each worker computes `local` for its share of the clients:

    <values from the server, argument of these clients> → <partial sums, results of these clients>

At last, the server's own process computes `finish`:

    <server argument, partial sums of every share> → results at the server

Unlike in TFF's mergeable form, client results are computed together with the sums and not after
them, so a round that returns client states trains every client once instead of twice.
"""

import itertools
import logging
from collections.abc import Sequence
from typing import Any

import tensorflow_federated as tff

from tff_pcdd.runtime import _blocks
from tff_pcdd.runtime._native import compile_for_import

_logger = logging.getLogger(__name__)


class Plan:
    """A computation in TFF's native form, split for several workers if possible.

    Attributes:
        type_signature: type of the computation.
        local: the workers' part, or None if the computation cannot be split; then it has to be
            computed as a whole.
        before: the server's part before it; None if clients need no values from the server.
        kept_arguments: positions in the client argument of values that a client keeps between
            calls: `local` returns a new value of the same type.
        kept_results: positions of these new values in the client results.
    """

    def __init__(self, computation: tff.framework.ConcreteComputation):
        self.type_signature = computation.type_signature
        self.local: tff.framework.ConcreteComputation | None = None
        self.before: tff.framework.ConcreteComputation | None = None
        self._finish: dict[int, tff.framework.ConcreteComputation] = {}
        block = _blocks.client_block(computation)
        if block is None:
            return
        reason = self._cut(*block)
        if reason:
            _logger.warning("A federated computation is not divided, because %s.", reason)

    def _cut(self, parameter: str, block: tff.framework.Block) -> str | None:
        """Splits the computation; returns the reason if that is impossible."""
        sums, early, late = [], [], []
        late_names: set[str] = set()
        for name, value in block.locals:
            is_late = not late_names.isdisjoint(_blocks.references(value))
            sums_here = _blocks.sums_in(value)
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

        leaves = list(_blocks.leaves(block.result))
        for _, leaf in leaves:
            at_clients = leaf.type_signature.placement is tff.CLIENTS
            if at_clients and not late_names.isdisjoint(_blocks.references(leaf)):
                return "its client results depend on sums over clients"
        self._client_leaves = [
            (path, leaf) for path, leaf in leaves if leaf.type_signature.placement is tff.CLIENTS
        ]
        self._server_leaves = [
            (path, leaf) for path, leaf in leaves if leaf.type_signature.placement is tff.SERVER
        ]
        arguments = list(
            _blocks.leaves(tff.framework.Reference(parameter, self.type_signature.parameter))
        )
        self._server_arguments = [
            a for a in arguments if not _blocks.is_at_clients(a[1].type_signature)
        ]
        self._client_arguments = [
            a for a in arguments if _blocks.is_at_clients(a[1].type_signature)
        ]
        self._parameter, self._sums, self._early, self._late = parameter, sums, early, late

        self._make_local()
        return None

    def _make_local(self) -> None:
        """Makes `local` and `before`, between which only values go that clients really need."""
        at_server = [(n, v) for n, v in self._early if _blocks.is_at_server(v.type_signature)]
        candidates = [leaf for _, leaf in self._server_arguments]
        candidates += [tff.framework.Reference(name, v.type_signature) for name, v in at_server]
        passed = _blocks.used(self._local_part(at_server, candidates, range(len(candidates))))
        self.local = self._local_part(at_server, candidates, passed)
        self._sums_type = self.local.type_signature.result[0]
        if passed:
            kept = [leaf.type_signature for _, leaf in self._server_arguments]
            argument = tff.framework.Reference("argument", tff.StructType(kept))
            self.before = _blocks.computation(
                argument.name,
                argument.type_signature,
                [(self._parameter, self._rebuilt(server=argument)), *at_server],
                [candidates[index] for index in passed],
            )
        types = [leaf.type_signature.member for _, leaf in self._client_arguments]
        results = [leaf.type_signature.member for _, leaf in self._client_leaves]
        self.kept_arguments = [i for i, t in enumerate(types) if t in results]
        self.kept_results = [i for i, t in enumerate(results) if t in types]

    def _local_part(self, at_server, candidates, passed: Sequence[int]):
        """`local`, given the positions of the candidates that are passed from the server."""
        arguments = [leaf.type_signature for _, leaf in self._client_arguments]
        both = tff.framework.Reference(
            "from_server_and_clients",
            tff.StructType(
                [
                    tff.StructType([candidates[index].type_signature for index in passed]),
                    tff.StructType(arguments),
                ]
            ),
        )
        server, clients = (tff.framework.Selection(both, index=i) for i in range(2))
        given = [
            tff.framework.Selection(server, index=passed.index(index))
            if index in passed
            else _blocks.unused(candidate.type_signature)
            for index, candidate in enumerate(candidates)
        ]
        num_arguments = len(self._server_arguments)
        names = dict(zip((name for name, _ in at_server), given[num_arguments:], strict=True))
        parts = [(f"{name}_part", _blocks.without_report(value)) for name, value in self._sums]
        return _blocks.computation(
            both.name,
            both.type_signature,
            [
                (self._parameter, self._rebuilt(given[:num_arguments], clients)),
                *((name, names.get(name, value)) for name, value in self._early),
                *parts,
            ],
            [
                [tff.framework.Reference(name, value.type_signature) for name, value in parts],
                [leaf for _, leaf in self._client_leaves],
            ],
        )

    def _rebuilt(self, server: Any, clients: Any = None) -> tff.framework.ComputationBuildingBlock:
        """The parameter, made of other expressions for its parts at the server and at the clients.

        Args:
            server: a struct, or a list of expressions.
            clients: a struct; None if the values at the clients are not used.
        """
        at_server, at_clients = itertools.count(), itertools.count()

        def select(source, index):
            return source[index] if isinstance(source, list) else _blocks.selected(source, index)

        def rebuild(type_spec):
            if isinstance(type_spec, tff.StructType):
                return tff.framework.Struct(
                    [(name, rebuild(t)) for name, t in tff.structure.iter_elements(type_spec)]
                )
            if not _blocks.is_at_clients(type_spec):
                return select(server, next(at_server))
            return (
                _blocks.unused(type_spec) if clients is None else select(clients, next(at_clients))
            )

        return rebuild(self.type_signature.parameter)

    def server_argument(self, argument: Any) -> list:
        """The parts of an argument that are placed at the server, as `before` takes them."""
        return [_blocks.at_path(path, argument) for path, _ in self._server_arguments]

    def client_argument(self, argument: Any) -> list:
        """The parts of an argument that are placed at the clients, as `local` takes them."""
        return [_blocks.at_path(path, argument) for path, _ in self._client_arguments]

    def finish(self, num_shares: int) -> tff.framework.ConcreteComputation | None:
        """The server's part, `<server argument, partial sums of every share> → results`."""
        if not self._server_leaves:
            return None
        if num_shares not in self._finish:
            self._finish[num_shares] = self._make_finish(num_shares)
        return self._finish[num_shares]

    def _make_finish(self, num_shares: int) -> tff.framework.ConcreteComputation:
        kept = [leaf.type_signature for _, leaf in self._server_arguments]
        shares_type = tff.StructType([self._sums_type] * num_shares)
        both = tff.framework.Reference(
            "argument_and_sums", tff.StructType([tff.StructType(kept), shares_type])
        )
        argument, shares = (tff.framework.Selection(both, index=i) for i in range(2))
        reports = []
        for k, (name, value) in enumerate(self._sums):
            _, _, _, merge, report = value.argument
            merged, *others = (
                tff.framework.Selection(tff.framework.Selection(shares, index=i), index=k)
                for i in range(num_shares)
            )
            for other in others:
                merged = _blocks.apply_at_server(merge, _blocks.zip_at_server(merged, other))
            reports.append((name, _blocks.apply_at_server(report, merged)))
        return _blocks.computation(
            both.name,
            both.type_signature,
            [
                (self._parameter, self._rebuilt(server=argument)),
                *self._early,
                *reports,
                *self._late,
            ],
            [leaf for _, leaf in self._server_leaves],
        )

    def assemble(self, client_results: Sequence, server_results: Sequence) -> Any:
        """Builds the result of the whole computation, with tuples as structs."""
        values = {}
        for k, (path, leaf) in enumerate(self._client_leaves):
            if leaf.type_signature.all_equal:
                values[path] = client_results[0][k]
            else:
                values[path] = [value for share in client_results for value in share[k]]
        for k, (path, _) in enumerate(self._server_leaves):
            values[path] = server_results[k]

        def build(type_spec, path):
            if isinstance(type_spec, tff.FederatedType):
                return values[path]
            return tuple(build(field, (*path, i)) for i, field in enumerate(type_spec))

        return build(self.type_signature.result, ())


def compile_plan(computation: tff.framework.ConcreteComputation) -> Plan:
    """Compiles a computation to TFF's native form and splits it."""
    return Plan(compile_for_import(computation))

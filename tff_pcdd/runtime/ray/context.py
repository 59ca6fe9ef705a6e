"""Runtime `ray`: the clients of a round are divided among Ray actors.

A round is split by `sharing.Plan`. The server's parts, and computations without clients, run in
this process as on the runtime `inprocess`. The clients' part is divided into as many shares of
consecutive clients as there are actors; each actor computes a share as `inprocess` would. The
shares depend on the number of actors that were started, not on how many are alive, and partial sums
are merged in a fixed order. So results do not depend on which actor computes which share.

What is sent in a round, counted in `RayContext.sent_bytes`:

- the server's values, that is, the weights: once to each node, into Ray's shared memory;
- clients' samples and states: only those that the actor does not have. Actors keep samples and the
  states that they have returned, and drop the least recently used ones if memory runs short;
- from each actor, its partial sums and the new states. This process has all states as well, so
  checkpoints are complete, and the states of a lost actor's clients are sent to another actor.

Anyone who can reach a Ray cluster can run programs on it; see `cluster`.
"""

from __future__ import annotations

import atexit
import collections
import hashlib
import itertools
import time
from collections.abc import Callable, Iterable
from typing import Any

import ray
import tensorflow_federated as tff

from tff_pcdd.errors import RuntimeStartError, SettingError
from tff_pcdd.runtime import inprocess
from tff_pcdd.runtime._computations import Computations
from tff_pcdd.runtime.ray import cluster, startup, transport
from tff_pcdd.runtime.ray.actor import Source, Work
from tff_pcdd.runtime.ray.shares import Actor, Actors, Share, explain
from tff_pcdd.runtime.ray.sharing import Plan, compile_plan
from tff_pcdd.runtime.ray.transport import Named


class RayContext(tff.framework.SyncContext):
    """An execution context that divides clients among actors; see the module's docstring.

    Args:
        actors: what `startup.start` has returned.
        loads_data: whether actors load samples themselves when `load_data` is called.

    Attributes:
        actors: as given.
        sent_bytes: bytes sent so far, by kind: `weights` (once for each machine with actors),
            `clients` (samples and states), `results` (partial sums, client results and new states)
            and `computations`.
        waited: seconds that this process has waited for shares so far.
        loads_data: as given.
    """

    def __init__(self, actors: Actors, *, loads_data: bool):
        self.actors = actors
        self.sent_bytes: collections.Counter[str] = collections.Counter()
        self.waited = 0.0
        self.loads_data = loads_data
        self._local = inprocess.create_context()
        self._plans = Computations(compile_plan)
        self._serialized = Computations(_serialize)
        self._names = transport.Names()
        self._closed = False
        # Nothing is left behind, even if the context is not closed.
        atexit.register(self.close)

    @property
    def tensor_float_32(self) -> bool:
        """Whether GPUs, of the actors as well, may compute float32 products in TF32."""
        return self._local.tensor_float_32

    @tensor_float_32.setter
    def tensor_float_32(self, value: bool) -> None:
        self._local.tensor_float_32 = value

    @property
    def deterministic(self) -> bool:
        """Whether the same call has the same result on the same cards, those of actors as well."""
        return self._local.deterministic

    @deterministic.setter
    def deterministic(self, value: bool) -> None:
        self._local.deterministic = value

    def close(self) -> None:
        """Ends the actors, and Ray if it was started for them. May be called more than once."""
        atexit.unregister(self.close)
        if not self._closed:
            self._closed = True
            self._local.close()
            startup.end([actor.handle for actor in self.actors.all])
            # References must not outlive the connection.
            self.actors.all.clear()

    def load_data(self, sources: Callable[[], Iterable[Source]], own: Iterable[Source]) -> None:
        """Makes each actor load the clients' arrays, which then need not be sent.

        Args:
            sources: called in each actor; returns functions that return arrays.
            own: functions that return the same arrays in this process.

        Raises:
            SettingError: an actor cannot load the arrays, or they differ from those here.
            RuntimeStartError: an actor is lost.
        """
        expected = frozenset(transport.name_of(array) for source in own for array in source())
        loading = [actor.handle.load.remote(sources) for actor in self.actors.all]
        for actor, answer in zip(self.actors.all, loading, strict=True):
            try:
                names = ray.get(answer)
            except ray.exceptions.RayTaskError as error:
                names = explain(error.cause)
            except ray.exceptions.RayError as error:
                raise RuntimeStartError(f"a Ray actor was lost: {explain(error)}") from error
            if names != expected:
                reason = f"cannot load them: {names}"
                if not isinstance(names, str):
                    reason = "finds other samples"
                reason = f"Ray actor {actor.number} {reason}; use data_placement=driver"
                raise SettingError("data_placement", "local", reason)
            actor.held |= expected

    def slow_bfloat16(self) -> str | None:
        """Why an actor does not compute fast in bfloat16; None if all do.

        Raises:
            RuntimeStartError: an actor is lost.
        """
        asked = [actor.handle.slow_bfloat16.remote() for actor in self.actors.all]
        for actor, answer in zip(self.actors.all, asked, strict=True):
            try:
                reason = ray.get(answer)
            except ray.exceptions.RayError as error:
                raise RuntimeStartError(f"a Ray actor was lost: {explain(error)}") from error
            if reason:
                return f"at Ray actor {actor.number}, {reason}"
        return None

    def invoke(self, comp: tff.framework.ConcreteComputation, arg: Any) -> Any:
        """Called by TFF with a computation and its argument."""
        plan = self._plans.get(comp)
        if plan.local is None:
            return self._local.invoke(comp, arg)
        argument = transport.encode(arg, comp.type_signature.parameter)
        clients = plan.client_argument(argument)
        num_clients = len(clients[0])
        if any(len(values) != num_clients for values in clients):
            raise ValueError(f"numbers of clients differ: {[len(values) for values in clients]}")
        if not num_clients:
            return self._local.invoke(comp, arg)
        results = self._compute(plan, plan.server_argument(argument), clients, num_clients)
        return transport.decode(results, comp.type_signature.result)

    def _compute(self, plan: Plan, server: list, clients: list, num_clients: int) -> Any:
        from_server: Any = ()
        if plan.before is not None:
            from_server = self._local.evaluate(plan.before, server, 0)
        cluster.check()
        shared = ray.put(from_server)
        clients = transport.map_leaves(self._names.named, clients)
        limits = ranges(num_clients, len(self.actors.all))
        start = time.monotonic()
        done = self.actors.run([self._share(plan, clients, shared, *limit) for limit in limits])
        self.waited += time.monotonic() - start
        nodes = {actor.node for actor, _ in done}
        self.sent_bytes["weights"] += transport.num_bytes(from_server) * len(nodes)
        if plan.kept_results:
            # The old states are not needed any more, because there are new ones.
            old = _names_in([clients[position] for position in plan.kept_arguments])
            for actor in self.actors.all:
                actor.held -= old
        results = [self._receive(actor, result) for actor, result in done]
        finish = plan.finish(len(done))
        at_server = ()
        if finish is not None:
            at_server = self._local.evaluate(finish, (server, [sums for sums, _ in results]), 0)
        return plan.assemble([returned for _, returned in results], at_server)

    def _share(self, plan: Plan, clients: list, shared: Any, begin: int, end: int) -> Share:
        """The share of the clients from `begin` to `end`."""
        part = [values[begin:end] for values in clients]
        name, serialized = self._serialized.get(plan.local)

        def submit(actor: Actor, everything: bool) -> Any:
            def without_held(leaf):
                has = isinstance(leaf, Named) and leaf.name in actor.held and not everything
                return Named(leaf.name) if has else leaf

            if everything or name not in actor.held:
                actor.handle.add_computation.remote(name, serialized)
                self.sent_bytes["computations"] += len(serialized)
            sent = transport.map_leaves(without_held, part)
            self.sent_bytes["clients"] += transport.num_bytes(sent)
            actor.held |= _names_in(part) | {name}
            work = Work(
                name,
                begin,
                end,
                len(clients[0]),
                sent,
                plan.kept_arguments,
                plan.kept_results,
                self._local.tensor_float_32,
                self._local.deterministic,
            )
            return actor.handle.compute.remote(work, shared)

        return submit

    def _receive(self, actor: Actor, result: Any) -> Any:
        """Accepts the result of a share, and copies the arrays that are needed after this call.

        The result itself is in the node's shared memory, which is freed after the call.
        """
        self.sent_bytes["results"] += transport.num_bytes(result)
        sums, client_results = result
        actor.held |= _names_in(client_results)
        return sums, transport.map_leaves(self._names.remember, client_results)


def _serialize(computation: tff.framework.ConcreteComputation) -> tuple[bytes, bytes]:
    """Name and content of a computation."""
    proto = tff.framework.serialize_computation(computation)
    serialized = proto.SerializeToString(deterministic=True)
    return hashlib.sha256(serialized).digest(), serialized


def ranges(num_clients: int, num_shares: int) -> list[tuple[int, int]]:
    """Divides clients into ranges of nearly equal length, none of them empty."""
    num_shares = min(num_shares, num_clients)
    cuts = [num_clients * i // num_shares for i in range(num_shares + 1)]
    return list(itertools.pairwise(cuts))


def _names_in(value: Any) -> set[bytes]:
    """The names of the arrays in a value."""
    names = set()

    def look(leaf):
        if isinstance(leaf, Named):
            names.add(leaf.name)

    transport.map_leaves(look, value)
    return names

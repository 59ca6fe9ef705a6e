"""A method followed by a head calibration: the two as one method, by composition."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from etils import epy

from tff_pcdd.errors import SettingError
from tff_pcdd.methods import head_calibration
from tff_pcdd.methods.contract import Method
from tff_pcdd.methods.fedavg import FedAvg
from tff_pcdd.methods.head_calibration import HeadCalibration
from tff_pcdd.methods.network import (
    Network,
    Placement,
    build,
    linear_head,
    moves,
    owned_weights,
)
from tff_pcdd.methods.records import Client, Phase, TaskSpec, Upload

with epy.lazy_imports():
    import tensorflow as tf

_CALIBRATED = "calibrated_"
# A method with one of these hooks has personal models that are not the global model.
_OWN_PERSONAL = ("personalize", "personal_logits", "personal_phases")
# With any of these, the server's step is not the mean change.
_OWN_STEP = ("update", "server_change", "server_learning", "server_update")


def compose(method: Method, calibration: HeadCalibration | None = None) -> Method:
    """A method with a head calibration; without an active one, the method itself.

    Args:
        method: the method. If its name stands for FedAvg with a calibration (`ccvr`), that one is
            the default.
        calibration: the calibration; none by default.

    Raises:
        SettingError: the head of the method cannot be re-trained, or the name stands for another
            calibration.
    """
    setting = head_calibration.registry.setting
    if isinstance(method, Calibrated):
        return method
    name = ""
    if own := method.head_calibration:
        if calibration is None or calibration.name == "none":
            calibration = head_calibration.registry.create(own)
        if calibration.name != own:
            reason = f"algorithm={method.name} is fedavg with {setting}={own}; choose fedavg"
            raise SettingError(setting, calibration.name, reason)
        name, method = method.name, FedAvg(client_weighting=method.client_weighting)
    if calibration is None or calibration.name == "none":
        return method
    if fixed := method.fixed_head:
        reason = f"algorithm={method.name} {fixed}; choose {setting}=none or another method"
        raise SettingError(setting, calibration.name, reason, kind="its head cannot be re-trained")
    if not calibration.is_active:
        return method
    name = name or f"{method.name} with {setting}={calibration.name}"
    # It has all hooks and attributes of a method.
    return cast(Method, Calibrated(method, calibration, name))


def alternative(method: Method, accepts: Callable[[Method], bool]) -> str:
    """What an error that refuses a method says to choose instead.

    Args:
        method: the method, with its head calibration if it has one.
        accepts: whether what refuses it would accept the method without the calibration.
    """
    if not isinstance(method, Calibrated) or not accepts(method.method):
        return "another method"
    # Some names of methods stand for FedAvg with a calibration.
    if method.name == method.calibration.name:
        return f"algorithm={method.method.name}"
    return f"{head_calibration.registry.setting}=none"


@dataclasses.dataclass(frozen=True)
class Calibrated:
    """A method whose global model gets a head that the server has re-trained.

    Clients train the model of the method and never start from the re-trained head. All hooks of the
    method receive a view of the network with the pieces of its own model, so it trains as without
    a calibration. Everything that is not defined here is that of the method.

    If the calibration needs features, clients compute them with the method's backbone as it was
    broadcast, and the re-trained head fits this backbone. With the backbone that results from the
    round, for which no client has computed features yet, it can be worse than the head without
    re-training. The global model is therefore the broadcast network with the re-trained head: the
    method's model of the previous round after re-training. It consists of the pieces with the
    method's own names, and the model that clients train of the pieces `<method>_<piece>`. In a
    round, a client replaces the former by the latter before it trains, all but the head. Both are
    part of the weights, so the reported bytes are twice those of the method's weights. A deployment
    needs less: the server already knows what clients return for the global model, and clients need
    the global model only for their personal models. Without features, only the head exists twice,
    and nothing is delayed.

    The accuracy of the method's own model is reported as `ga_<method>`. The personal models start
    from the calibrated global model, unless the method has personal models of its own, which stay
    as they are.

    Attributes:
        method: the method.
        calibration: how the head is re-trained.
        name: what errors call it.
    """

    method: Method
    calibration: HeadCalibration
    name: str

    def __getattr__(self, name: str) -> Any:
        if name == "method" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.method, name)

    @property
    def code(self) -> Sequence[Any]:
        return (*self.method.code, self.calibration)

    def overrides(self, hook: str) -> bool:
        return hook == "server_state" or self.method.overrides(hook)

    def adds_mean(self) -> bool:
        # The broadcast network becomes the global model by a mean that no optimizer may change.
        return not self._delayed and self.method.adds_mean()

    # The network.

    @property
    def _prefix(self) -> str:
        return f"{self.method.name}_"

    @property
    def _delayed(self) -> bool:
        return self.calibration.uses_features

    def build(self, task: TaskSpec) -> dict[str, Any]:
        parts = self._parts(task)
        head = parts[self.method.linear_head]
        if not self._delayed:
            width, _ = head.kernel.shape
            name = f"{_CALIBRATED}{self.method.linear_head}"
            return {**parts, name: linear_head(task, width)}
        # What never changes exists once.
        moving = [name for name, part in parts.items() if self._moves(name, part, task)]
        again = self._parts(task)
        return parts | {f"{self._prefix}{name}": again[name] for name in moving}

    def _parts(self, task: TaskSpec) -> dict[str, Any]:
        """The pieces of the method, the head last, so that its variables are the last ones."""
        name = self.method.linear_head
        parts = dict(self.method.build(task))
        head = parts.pop(name, None)
        if not isinstance(head, tf.keras.layers.Dense) or not head.use_bias:
            reason = f"{self.method.name} has no dense layer with a bias as its {name!r}"
            raise SettingError(head_calibration.registry.setting, self.calibration.name, reason)
        return {**parts, name: head}

    def _moves(self, name: str, part: Any, task: TaskSpec) -> bool:
        build(part, task)
        owners = [owner for _, owner in owned_weights(part)]
        return any(self.method.placement(name, owner) is not Placement.FIXED for owner in owners)

    def placement(self, part: str, layer: tf.keras.layers.Layer) -> Placement:
        if part.startswith(_CALIBRATED):
            return Placement.SHARED
        if part.startswith(self._prefix):
            return self.method.placement(part.removeprefix(self._prefix), layer)
        placement = self.method.placement(part, layer)
        # What clients keep belongs to the model that they train.
        is_kept = self._delayed and placement is Placement.PERSONAL
        return Placement.SCRATCH if is_kept else placement

    def _view(self, net: Network, prefix: str = "") -> Network:
        """The method's network of the pieces with a prefix, or with their own name without it."""
        if net.method is not self:
            return net
        names = [name for name in net.parts if not name.startswith((self._prefix, _CALIBRATED))]
        own = {n: f"{prefix}{n}" if f"{prefix}{n}" in net.parts else n for n in names}
        return net.view(self.method, own)

    def _trained(self, net: Network) -> Network:
        """What clients train."""
        return self._view(net, self._prefix)

    def _global(self, net: Network) -> Network:
        """The global model, with the re-trained head."""
        return self._view(net, "" if self._delayed else _CALIBRATED)

    def _head_of(self, net: Network) -> tf.keras.layers.Dense:
        return self._global(net)[self.method.linear_head]

    def embed(self, net: Network, x: tf.Tensor, training: bool) -> tf.Tensor:
        return self.method.embed(self._global(net), x, training)

    # What the method receives.

    def _split(self, values: Sequence[tf.Tensor]) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Values of the shared trainable variables: those of the copies, and the method's own."""
        values = list(values)
        if not self._delayed:
            return values[-2:], values[:-2]
        half = len(values) // 2
        return values[:half], values[half:]

    def _join(self, copies: Sequence[tf.Tensor], own: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return [*copies, *own] if self._delayed else [*own, *copies]

    def _start(self, values: Sequence[tf.Tensor], trained: tf.Tensor) -> list[tf.Tensor]:
        """The method's own weights; before the first training, those of the global model.

        Pieces with other names have other initial values, and both models start as the method does.
        """
        copies, own = self._split(values)
        if not self._delayed:
            return own
        return [tf.where(trained, now, first) for first, now in zip(copies, own, strict=True)]

    def _client(self, client: Client) -> Client:
        return client._replace(
            anchor=self._start(client.anchor, client.server.get("trained")),
            server=self._own(client.server),
        )

    def _own(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The method's tensors among those of the server or of a client."""
        names = [name for name in values if name.startswith(self._prefix)]
        return {name.removeprefix(self._prefix): values[name] for name in names}

    def _named(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {f"{self._prefix}{name}": value for name, value in values.items()}

    def _others(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: values[name] for name in values if not name.startswith(self._prefix)}

    # Local training.

    def begin(self, net: Network, client: Client) -> None:
        if self._delayed:
            self._load(net, client.server["trained"])
        self.method.begin(self._trained(net), self._client(client))

    def prepare(
        self, net: Network, client: Client, labels: tf.Tensor, apply: Callable[..., tf.Tensor]
    ) -> tuple[Client, tf.Tensor]:
        self._receive(net)
        own, labels = self.method.prepare(self._trained(net), self._client(client), labels, apply)
        known = {"constants": own.constants, "state": own.state, "optimizer": own.optimizer}
        return client._replace(**known), labels

    def _receive(self, net: Network) -> None:
        """Makes the broadcast network the next global model, all but the head, at all clients."""
        head = {variable.ref() for variable in self._head_of(net).weights}
        for own, trained in net.copies(self._prefix):
            if own.ref() not in head:
                own.assign(trained)

    def _load(self, net: Network, trained: tf.Tensor) -> None:
        """As `_start`, in the variables."""
        sent = {v.ref() for v in [*net.shared.all, *net.mirrored.all]}
        for first, variable in net.copies(self._prefix):
            if variable.ref() in sent:
                variable.assign(tf.where(trained, variable, first))

    def phases(self, net: Network, epochs: int) -> list[Phase]:
        view = self._trained(net)
        return self._in_view(view, self.method.phases(view, epochs))

    def _in_view(self, view: Network, phases: Sequence[Phase]) -> list[Phase]:
        return [dataclasses.replace(p, loss=self._loss(view, p.loss)) for p in phases]

    def _loss(self, view: Network, loss: Callable[..., Any]) -> Callable[..., Any]:
        return lambda net, batch, client: loss(view, batch, self._client(client))

    # State and communication.

    def server_state(self, net: Network, task: TaskSpec) -> dict[str, Any]:
        dim, num_classes = self._head_of(net).kernel.shape
        return {
            **({"trained": tf.constant(False)} if self._delayed else {}),
            **self.calibration.server_state(dim, num_classes, task.seed),
            **self._named(self.method.server_state(self._view(net), task)),
        }

    def broadcast(self, server: Mapping[str, Any]) -> dict[str, Any]:
        flag = {"trained": server["trained"]} if self._delayed else {}
        return {**flag, **self._named(self.method.broadcast(self._own(server)))}

    def client_state(self, net: Network, task: TaskSpec, seed: tf.Tensor) -> dict[str, Any]:
        return self.method.client_state(self._view(net), task, seed)

    def initial_personal(self, net: Network, seed: tf.Tensor) -> list[tf.Tensor]:
        return self.method.initial_personal(self._view(net), seed)

    @property
    def _is_mean(self) -> bool:
        return not any(map(self.method.overrides, _OWN_STEP))

    def update(self, net: Network, client: Client) -> list[tf.Tensor]:
        changes = Method.update(self.method, net, client)
        if self._is_mean:
            return changes
        copies, _ = self._split(changes)
        return self._join(copies, self.method.update(self._trained(net), self._client(client)))

    def weight(self, client: Client) -> tf.Tensor:
        return self.method.weight(self._client(client))

    def upload(self, net: Network, client: Client, reduce: Callable[..., Any]) -> Upload:
        own = self.method.upload(self._trained(net), self._client(client), reduce)
        sums = self._sums(net, client, reduce)
        sizes = [
            sum(math.prod(leaf.shape) for leaf in tf.nest.flatten(part))
            for part in (sums, own.sums)
        ]
        sent = (sizes[0] + own.sent * sizes[1]) / sum(sizes) if any(sizes) else own.sent
        return Upload({**sums, **self._named(own.sums)}, own.state, sent)

    def head_sums(
        self, net: Network, client: Client, reduce: Callable[..., Any]
    ) -> dict[str, tf.Tensor]:
        """What a client sends for the calibration, without training."""
        self._receive(net)
        return self._sums(net, client, reduce)

    def _sums(
        self, net: Network, client: Client, reduce: Callable[..., Any]
    ) -> dict[str, tf.Tensor]:
        def embed(x):
            return tf.cast(self.embed(net, x, training=False), tf.float32)

        return self.calibration.sums(self._head_of(net), embed, client.class_counts, reduce)

    def server_learning(
        self,
        net: Network,
        server: Mapping[str, Any],
        change: Sequence[tf.Tensor],
        sums: Mapping[str, tf.Tensor],
        task: TaskSpec,
        learn: Callable[..., None],
    ) -> dict[str, Any]:
        if self._delayed:
            self._load(net, server["trained"])
        view = self._trained(net)
        own = self.method.server_learning(
            view,
            self._own(server),
            self._split(change)[1],
            self._own(sums),
            task,
            lambda x, y, loss, number: learn(x, y, self._loss(view, loss), number),
        )
        return {**self._others(server), **self._named(own)}

    def server_change(
        self, change: Sequence[tf.Tensor], sums: Mapping[str, tf.Tensor]
    ) -> list[tf.Tensor]:
        copies, own = self._split(change)
        return self._join(copies, self.method.server_change(own, self._own(sums)))

    def server_update(
        self,
        weights: Sequence[tf.Tensor],
        change: Sequence[tf.Tensor],
        server: Mapping[str, Any],
        sums: Mapping[str, tf.Tensor],
        cohort_size: tf.Tensor,
    ) -> tuple[list[tf.Tensor], dict[str, Any]]:
        """The method's own step, then the calibration."""
        copies, old = self._split(weights)
        copies_change, own_change = self._split(change)
        copies = [w + delta for w, delta in zip(copies, copies_change, strict=True)]
        start = old if self._is_mean else self._start(weights, server.get("trained"))
        own, state = self.method.server_update(
            start, own_change, self._own(server), self._own(sums), cohort_size
        )
        # A cohort without samples does not count as training.
        moved, flag = moves(change), {}
        if self._delayed:
            flag = {"trained": tf.logical_or(server["trained"], moved)}
            if not self._is_mean:
                own = [tf.where(flag["trained"], w, was) for w, was in zip(own, old, strict=True)]
        retrained, calibration = self.calibration.retrain(
            tuple(own[-2:]), tuple(copies[-2:]), self._others(server), self._others(sums)
        )
        pairs = zip(retrained, copies[-2:], strict=True)
        copies[-2:] = retrained if self._delayed else [tf.where(moved, *pair) for pair in pairs]
        return self._join(copies, own), {**calibration, **flag, **self._named(state)}

    # A calibration of weights that the method has trained without one.

    def piece_of(self, name: str) -> str:
        """The method's own name of a piece of the network."""
        return name.removeprefix(self._prefix).removeprefix(_CALIBRATED)

    def calibrated_server(
        self, initial: Mapping[str, Any], trained: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The server's own tensors before the calibration, from the first ones and the method's."""
        return self.given_weights({**initial, **self._named(trained)})

    def calibrate(
        self,
        weights: Sequence[tf.Tensor],
        server: Mapping[str, Any],
        sums: Mapping[str, tf.Tensor],
    ) -> tuple[list[tf.Tensor], dict[str, Any]]:
        """Re-trains the head with the sum of all clients' `head_sums`; all else stays as it is.

        The copies among the shared trainable variables equal the method's own.
        """
        copies, own = self._split(weights)
        retrained, state = self.calibration.retrain(
            tuple(own[-2:]), tuple(copies[-2:]), self._others(server), sums
        )
        return self._join([*copies[:-2], *retrained], own), {**server, **state}

    def given_weights(self, server: Mapping[str, Any]) -> dict[str, Any]:
        """The server's own tensors if its first weights are those after rounds of another run.

        Clients then start from the method's own weights, and not from the re-trained head.
        """
        return {**server, "trained": tf.constant(True)} if self._delayed else dict(server)

    def both_models(
        self, net: Network, server: Mapping[str, Any]
    ) -> list[tuple[tf.Variable, tf.Variable]]:
        """Pairs of variables: of the global model, and of the one that clients train instead."""
        return net.copies(self._prefix) if self._delayed and server["trained"] else []

    # The resulting models.

    def global_logits(self, net: Network, x: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = self.method.global_logits(self._global(net), x)
        if net.method is self:
            own = self.method.global_logits(self._trained(net), x)
            logits[self.method.name] = own[""]
        return logits

    def _personal(self, net: Network) -> Network:
        own = any(map(self.method.overrides, _OWN_PERSONAL))
        return self._trained(net) if own else self._global(net)

    def personalize(self, net: Network, client: Client) -> None:
        if self._delayed:
            self._complete(net)
        self.method.personalize(self._personal(net), self._client(client))

    def _complete(self, net: Network) -> None:
        """Gives values to variables of the global model that only local training needs.

        Nobody trains the global model itself, but whoever takes a personal model reads all.
        """
        known = {v.ref() for v in [*net.shared.all, *net.mirrored.all, *net.fixed]}
        for own, trained in net.copies(self._prefix):
            if own.ref() not in known:
                own.assign(trained)

    def personal_logits(self, net: Network, x: tf.Tensor, client: Client) -> tf.Tensor:
        return self.method.personal_logits(self._personal(net), x, self._client(client))

    def personal_phases(self, net: Network, epochs: int) -> list[Phase]:
        view = self._personal(net)
        return self._in_view(view, self.method.personal_phases(view, epochs))

    def global_classifiers(self, net: Network) -> dict[str, tf.Tensor]:
        return self.method.global_classifiers(self._global(net))

    def local_view(self, net: Network) -> Network:
        return self.method.local_view(self._trained(net))

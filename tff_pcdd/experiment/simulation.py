"""A federation in memory: rounds of a method, and evaluation of its models.

    config = ExperimentConfig.from_settings(algorithm="fedgela", clients_per_round=4)
    simulation = Simulation(config)
    for _ in range(10):
        simulation.next_round()
    simulation.evaluate()["ga"]

A simulation changes nothing outside of the object; a run (see `run`) adds a directory, checkpoints
and callbacks.
"""

from __future__ import annotations

import functools
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from etils import epy

from tff_pcdd import data, federated, runtime, text
from tff_pcdd.data import checks
from tff_pcdd.data.new_clients import NewClients
from tff_pcdd.errors import DataError, SettingError
from tff_pcdd.experiment import accuracy_columns, cohort_data
from tff_pcdd.experiment.accuracy_columns import Groups
from tff_pcdd.experiment.client_store import ClientStateStore, MemoryStore
from tff_pcdd.experiment.cohort_data import pooled_data
from tff_pcdd.experiment.cohorts import check_sampling, derive_seed, sample_cohort
from tff_pcdd.experiment.compute import ComputeOptions
from tff_pcdd.experiment.config import ExperimentConfig, check_is_config
from tff_pcdd.experiment.initial_weights import InitialWeights, as_trained
from tff_pcdd.experiment.model_evaluation import Answers, ModelEvaluation, as_arrays
from tff_pcdd.experiment.nonfinite import NonfiniteLog
from tff_pcdd.experiment.planning import training_spec
from tff_pcdd.experiment.round_metrics import round_metrics, traffic
from tff_pcdd.federated.records import ClientData, ClientState, ServerState

with epy.lazy_imports():
    import tensorflow as tf

_logger = logging.getLogger(__name__)

# Separate the seeds that are derived from the same numbers for different purposes.
_BATCHES, _CLIENTS = 1, 2


class Simulation:
    """A method's computations, a federation, the clients' states and the server's state.

    Args:
        config: the settings; its components may be your own objects, registered or not.
        federation: the clients and their samples; by default they are loaded as `config` says.
        initial: weights from which training starts, for example those of another simulation; by
            default, they are drawn with the seed of the model. All else starts afresh.
        compute: where computations run.
        store: creates the store of the client states, given a function that computes the initial
            state of a client; in memory by default.

    Attributes:
        config, federation: as given, or loaded.
        spec: what the computations are built from.
        process: the TFF computations.
        cohort_size: number of clients in a round.
        round: number of rounds computed so far.
        state: the server's state after that round.
        store: the clients' states after that round.
        totals: bytes that all clients together have sent and received so far, and the counts of
            `NonfiniteLog`.
        nonfinite: the `NonfiniteLog`, which says whether training has diverged.

    Raises:
        SettingError: the settings cannot be used with the data.
        DataError: the data cannot be read, or no client has training samples.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        federation: data.Federation | None = None,
        *,
        initial: InitialWeights | None = None,
        compute: ComputeOptions | None = None,
        store: Callable[[Callable[[int], Any]], ClientStateStore] = MemoryStore,
    ):
        check_is_config(config)
        self.config = config
        self._compute = compute or ComputeOptions()
        self._compute.runtime.prepare()
        if federation is None:
            config.check_data()
            federation = config.data.build()
        if not isinstance(federation, data.Federation):
            reason = "must be a Federation, such as from_dataframe and from_arrays make"
            raise SettingError("federation", type(federation).__name__, reason)
        self.federation = _with_new_clients(federation, config)
        num_clients = self.federation.num_clients
        empty = self.federation.clients_without_train
        if empty == num_clients:
            if new := len(self.federation.new_clients):
                chosen = config.data.new if config.data.new.count else NewClients(new)
                others = "others" if chosen.names else "another seed (new_clients_seed)"
                raise chosen.refused(
                    f"leaves no client with training samples; take fewer, or {others}"
                )
            raise DataError(f"{federation.name}: no client has training samples")
        if empty and not checks.is_warned_before():
            have = "has" if empty == 1 else "have"
            _logger.warning("%d of %d clients %s no training samples", empty, num_clients, have)
        if config.training.clients_per_round > num_clients:
            raise SettingError(
                "clients_per_round",
                config.training.clients_per_round,
                f"the federation has only {num_clients} clients"
                + (" that train" if self.federation.new_clients else ""),
            )
        self.cohort_size = config.training.clients_per_round or num_clients
        self._samples = [client.train.size for client in self.federation.clients]
        check_sampling(config.training.cohort_sampling, self._samples, self.cohort_size)
        self._compute.prepare_tracing(deterministic=config.training.deterministic)
        self.spec = training_spec(config, self.federation, self._compute)
        self.process = federated.build_process(self.spec, config.aggregator)
        self.groups = Groups.of(self.federation.class_counts())
        self.store = store(self.initial_client_state)
        self.round = 0
        self.totals = {"upload_bytes": 0, "download_bytes": 0}
        self.nonfinite = NonfiniteLog(config.training.nonfinite, self.totals)
        self._state: ServerState | None = None
        self._initial: InitialWeights | None = None
        self._evaluation = ModelEvaluation(self)
        if initial is not None:
            self.start_with(initial)

    @functools.cached_property
    def _context(self) -> Any:
        model = self.config.model
        context = self._compute.create_context(
            model.precision,
            is_auto=model.precision_is_auto,
            deterministic=self.config.training.deterministic,
        )
        if getattr(context, "loads_data", False):
            try:
                context.load_data(
                    functools.partial(cohort_data.load, self.config.data),
                    cohort_data.sources(self.federation),
                )
            except BaseException:
                context.close()
                raise
        return context

    def start(self) -> None:
        """Starts the runtime; otherwise it starts with the first computation.

        Raises:
            SettingError: the runtime cannot be used with its settings.
            RuntimeStartError: the runtime cannot be started.
        """
        _ = self._context

    def invoke(self, computation: Callable, *arguments: Any) -> Any:
        """Calls a TFF computation on the runtime of this simulation."""
        with runtime.installed(self._context):
            return computation(*arguments)

    def close(self) -> None:
        """Releases the resources of the runtime; a further computation would start it again."""
        context = self.__dict__.pop("_context", None)
        if hasattr(context, "close"):
            context.close()

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def start_with(self, initial: InitialWeights) -> None:
        """Replaces the initial weights, before the first round.

        Raises:
            SettingError: they do not fit the network.
        """
        self._initial = initial.fitting(self.spec, len(self.federation.every_client))
        self._state = None
        self._evaluation.forget()

    @property
    def state(self) -> ServerState:
        """The server's state after the last computed round; the initial state before the first."""
        if self._state is None:
            state = self.invoke(self.process.initialize)
            if self._initial is not None:
                state = self._initial.in_place_of(state, self.spec.method)
            elif (run := self.config.training.warm_start) is not None:
                reason = "only a `Run` reads these weights; give a simulation others as `initial`"
                raise SettingError("warm_start", run, reason)
            self._state = state
        return self._state

    def restore(
        self,
        round_number: int,
        state: ServerState | None,
        totals: Mapping[str, int],
        nonfinite_earlier: int | None = None,
    ) -> None:
        """Continues from the state after a round; the store is restored separately.

        Args:
            round_number: the round.
            state: the server's state. Before the first round it is None, and is drawn with the seed
                of the model.
            totals: the totals after the round.
            nonfinite_earlier: how many rounds before it were not finite, as in
                `NonfiniteLog.restore`.
        """
        self.round, self._state, self._initial = round_number, state, None
        self._evaluation.forget()
        self.totals.update({name: totals.get(name, 0) for name in self.totals})
        self.nonfinite.restore(round_number, nonfinite_earlier)

    def initial_client_state(self, client: int) -> ClientState:
        """The state of a client that has not taken part in any round."""
        if self._initial is None:
            return self._first_state(client)
        if not self._initial.clients:
            return self._first_state(client, as_trained(self.state, self.spec))
        state = self._first_state(client)
        if client not in self._initial.clients:
            # In the other simulation, too, it has not taken part, and has its first state.
            return state
        given = self._initial.clients[client]
        return state._replace(
            personal=[*given.personal], participations=np.int32(given.participations)
        )

    def _first_state(self, client: int, *weights: Any) -> ClientState:
        """The first state of a client if the server starts with given weights, or drawn ones."""
        seed = derive_seed(self.config.seeds.model, client, _CLIENTS)
        tensors = self.process.tensors
        computation = tensors.client_state_from if weights else tensors.initial_client_state
        return self.invoke(computation, *weights, seed)

    def client_data(self, client: int, cohort_index: int = 0, **parts: data.Examples) -> ClientData:
        """The data of a client for the next round.

        Args:
            client: number of the client.
            cohort_index: its position in the cohort.
            **parts: further examples by name, such as `test`.
        """
        train, _ = self.federation.client_examples(client)
        return ClientData(
            train=as_arrays(train),
            **{name: as_arrays(part) for name, part in parts.items()},
            seed=derive_seed(self.config.seeds.batches, self.round, client, _BATCHES),
            cohort_index=np.int32(cohort_index),
        )

    def next_round(self) -> dict[str, Any]:
        """Computes the next round.

        Clients that drop out are left out of the computations. If all do, the server and all
        clients stay as they are.

        Returns:
            What `round_metrics` returns, such as `train_loss`; the computing time in `seconds`;
            `upload_bytes` and `download_bytes` of the whole cohort.
        """
        seeds, num_clients = self.config.seeds, self.federation.num_clients
        sampling = self.config.training.cohort_sampling
        cohort = sample_cohort(
            seeds.cohorts, self.round, num_clients, self.cohort_size, sampling, self._samples
        )
        state, pooled = self.state, self.spec.method.pools_samples
        self._store_initial()
        # Clients that receive something, and whose states are kept.
        receivers = [] if pooled else cohort
        states = [self.store.get(client) for client in receivers]
        clients = [self.client_data(client, index) for index, client in enumerate(receivers)]
        # Clients without samples do not need the fixed variables.
        newcomers = sum(
            int(own.participations) == 0 and len(data.train["y"]) > 0
            for own, data in zip(states, clients, strict=True)
        )
        lost = [self.spec.local_work.drops_out(data.seed) for data in clients]
        senders, states, clients = (
            [each for each, gone in zip(column, lost, strict=True) if not gone]
            for column in (receivers, states, clients)
        )
        if pooled:
            states = [self.initial_client_state(0)]
            clients = [pooled_data(self.federation, seeds, self.round, cohort)]
        start = time.perf_counter()
        metrics = None
        if clients:
            self._state, states, metrics = self.invoke(self.process.next, state, states, clients)
        else:
            self._state = state._replace(round=np.int32(self.round + 1))
        seconds = time.perf_counter() - start
        self.round += 1
        self._evaluation.forget()
        self.nonfinite.begin(self.round)
        for client, own in zip(senders, states, strict=not pooled):
            self.store.put(client, own, self.round)
        means = round_metrics(self.spec, metrics, len(clients), sum(lost), self.nonfinite)
        sent = traffic(self.process, metrics, len(senders), len(receivers), newcomers)
        for name, size in sent.items():
            self.totals[name] += size
        return {**means, "seconds": seconds, **sent}

    def _store_initial(self) -> None:
        """Stores the states of clients that depend on given weights.

        So they are part of checkpoints also while the clients have not taken part.
        """
        if self._initial is None:
            return
        clients: Iterable[int] = self._initial.clients
        if not clients:
            # What clients keep begins with the weights of the server for a few methods only.
            given = as_trained(self.state, self.spec)
            first = self._first_state(0), self._first_state(0, given)
            if not all(map(np.array_equal, *map(tf.nest.flatten, first))):
                clients = range(len(self.federation.every_client))
        for client in clients:
            self.store.put(client, self.initial_client_state(client), self.round)
        self._initial = None

    # Evaluation.

    def evaluate(self) -> dict[str, float]:
        """The accuracies of the global model and of all personal models, in percent."""
        return {**self.evaluate_global(), **self.evaluate_personal()}

    def evaluate_global(self) -> dict[str, float]:
        """Accuracies of the global model, in percent.

        `ga` is measured on the whole test set, `va` on all samples that clients held out,
        `new_clients_ga` on the test samples of clients that take no part in training. For a
        method without a global model, they are means over clients of the accuracy of the personal
        model before any local step, as in FedGELA's tables.
        """
        return self._evaluation.global_accuracies()

    def evaluate_personal(self, *, after: bool = True) -> dict[str, float]:
        """Mean accuracies of the personal models on their clients' own samples, in percent.

        Those of clients that take no part in training have names of their own, such as
        `new_clients_pa`.

        Args:
            after: whether they are evaluated after their local epochs too, and not only before.
        """
        counts, new = self._evaluation.counts(after=after)
        metrics = self.config.evaluation.metrics
        return {
            **accuracy_columns.personal_accuracies(counts, self.groups, metrics),
            **accuracy_columns.at_new_clients(new, metrics),
        }

    def personal_counts(self) -> dict[str, np.ndarray]:
        """Samples and correctly classified samples by client and class, [K, C] each.

        The clients are those that train.
        """
        return self._evaluation.personal_counts()

    def answers(self) -> Answers:
        """What the models predict for the test samples after the current round.

        Evaluates what has not been evaluated since this round.
        """
        return self._evaluation.answers()

    def personal_inputs(self, client: int) -> tuple[ClientState, ClientData]:
        """The state and the data from which a client's personal model is made and evaluated."""
        return self.store.get(client), self.client_data(client, 0, **self.own_parts(client))

    def own_parts(self, client: int) -> dict[str, data.Examples]:
        """The samples on which a client's personal model is evaluated."""
        parts = {"test": self.federation.client_examples(client)[1]}
        if self.spec.validation:
            parts["validation"] = self.federation.validation_examples(client)
        return parts

    def map_clients(
        self,
        computation: Callable,
        parts: Callable[[int], Mapping[str, data.Examples]],
        clients: Sequence[int] | None = None,
    ) -> list[Any]:
        """What `in_cohorts` gives for an evaluation, client by client."""
        return list(itertools.chain.from_iterable(self.in_cohorts(computation, parts, clients)))

    def in_cohorts(
        self,
        computation: Callable,
        parts: Callable[[int], Mapping[str, data.Examples]] = lambda client: {},
        clients: Sequence[int] | None = None,
    ) -> Iterator[Any]:
        """Calls a computation with all clients, as many at a time as in a round.

        Args:
            computation: takes the arguments of `FederatedProcess.next`.
            parts: the examples of a client by name, in addition to the training samples.
            clients: numbers of clients; by default all that train.

        Yields:
            The result of each call.
        """
        if clients is None:
            clients = range(self.federation.num_clients)
        for start in range(0, len(clients), self.cohort_size):
            chunk = clients[start : start + self.cohort_size]
            yield self.invoke(
                computation,
                self.state,
                [self.store.get(client) for client in chunk],
                [self.client_data(client, 0, **parts(client)) for client in chunk],
            )

    # Single clients, and the models themselves.

    def clients(self) -> list[dict[str, Any]]:
        """What the models reach at each client, as in clients.csv.

        Evaluates what has not been evaluated since the last round.

        Returns:
            For each client, in the federation's order, its name (`client`), `train_samples`,
            `test_samples`, the accuracies in percent on its own test samples (`ga` of the global
            model, `pa_before` and `pa` of the personal model before and after its local epochs, and
            others), and a `warning`. A value is None where there are no samples or no such model.
            If some clients take no part in training, they come last, and `new` says which they are.
        """
        from tff_pcdd.training import clients_table

        return clients_table.of(self)

    def predict(self, x: Any, client: str | int | None = None) -> np.ndarray:
        """The classes that a model predicts for raw inputs.

        Args:
            x: inputs [n, …] as the federation stores them, such as uint8 images. For tables also a
                data frame, or a mapping from names to values: its columns are found by their
                names, further ones are ignored, and values are read as in training. For texts also
                strings [n], of which the last characters count.
            client: as for `keras_model`, which is called for this: keep its model if you predict
                more than once.

        Returns:
            Class numbers, int64 [n].

        Raises:
            DataError: x has another shape, or lacks a column, or a value cannot be used.
            SettingError: as `keras_model`.
        """
        from tff_pcdd.export import live

        return live.predict(self, x, client)

    def features(self, x: Any) -> np.ndarray:
        """What the global model's classifier receives: embeddings of raw inputs.

        Args:
            x: as for `predict`.

        Returns:
            Features, float32 [n, d].

        Raises:
            DataError: as `predict`.
            SettingError: there is no global model.
        """
        from tff_pcdd.export import live

        return live.features(self, x)

    def keras_model(
        self, client: str | int | None = None, *, local_epochs: bool = True
    ) -> tf.keras.Model:
        """The global model, or the personal model of a client, after the last computed round.

        Args:
            client: the name or the number of a client; None for the global model.
            local_epochs: whether a personal model is that after its local epochs (PA), which are
                computed again, or that before them.

        Returns:
            A Keras model with weights of its own, which later rounds do not change. It takes raw
            inputs, as the exported `.keras` file does, and returns `probabilities`
            [n, C] and `class_id` [n]; a personal model also `own_probabilities` and `own_class_id`,
            among the classes of the client's training data.

        Raises:
            SettingError: there is no such client, or no global model.
        """
        from tff_pcdd.export import live

        return live.keras_model(self, client, local_epochs=local_epochs)

    @property
    def has_other_data(self) -> bool:
        """Whether a federation was given that is not of the data set of the settings."""
        return self.federation.name != self.config.data.source.name

    @property
    def title(self) -> str:
        """Method, data and backbone, as pictures and tables are headed."""
        data = self.config.describe()
        if self.has_other_data:
            data = f"{self.federation.name}, {self.config.model.backbone.name}"
        return f"{self.config.method_title} on {data}"

    def __repr__(self) -> str:
        return f"Simulation({self.title}: {text.plural(self.round, 'round')})"


def _with_new_clients(federation: data.Federation, config: ExperimentConfig) -> data.Federation:
    """A federation with as many new clients as the settings say, unless it has been given some.

    Raises:
        SettingError: it has another number of them, or no client would be left to train.
    """
    new, known = config.data.new, len(federation.new_clients)
    if known and new.count not in (0, known):
        reason = f"the federation was given with {known} new clients; leave the setting out"
        raise new.refused(reason)
    if known or not new.count:
        return federation
    new.check(federation.num_clients, config.training.clients_per_round)
    return federation.with_new_clients(new.drawn, new.seed, names=new.names)

"""A data set before it is divided among clients: what is asked for, known about it, and loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tff_pcdd.data import new_clients
from tff_pcdd.data.federation import ClientIndices, Examples, Federation
from tff_pcdd.data.holdout import set_aside
from tff_pcdd.data.input_spec import InputSpec
from tff_pcdd.errors import SettingError


@dataclasses.dataclass(frozen=True)
class DatasetInfo:
    """What is known about a data set before it is loaded.

    Attributes:
        name: name by which the data set is chosen.
        kind: kind of its inputs, see `InputSpec`.
        num_classes: number of classes; the largest possible number if it depends on the copy.
        shape: shape of one input.
        has_users: whether samples belong to users, so that the natural partition can be used.
        needs_data_dir: whether there is no default directory.
        mean: mean of each channel, for pixels scaled to [0, 1]; None for 0.
        std: standard deviation of each channel, for pixels scaled to [0, 1]; None for 1.
        flip: whether a mirrored image keeps its class, so that augmentation may mirror images.
        resize: for image files, see `InputSpec`.
        vocabulary: for text, see `InputSpec`.
    """

    name: str
    kind: str
    num_classes: int
    shape: tuple[int, ...]
    has_users: bool = False
    needs_data_dir: bool = False
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    flip: bool = False
    resize: int | None = None
    vocabulary: str | None = None


@dataclasses.dataclass(frozen=True)
class LoadRequest:
    """Which part of a data set to load.

    Attributes:
        max_clients: number of users to load, drawn by `seed`; None for all users. A number is given
            only for sets with users.
        seed: a non-negative integer, the only source of randomness in loading.

    Raises:
        SettingError: if `max_clients` is less than 1.
    """

    max_clients: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_clients is not None and self.max_clients < 1:
            raise SettingError("max_clients", self.max_clients, "must be at least 1")


@dataclasses.dataclass(frozen=True)
class PooledData:
    """A data set before it is divided among clients.

    Attributes:
        train: training examples.
        test: test examples.
        class_names: one name per class.
        input_spec: how raw inputs become model inputs.
        users: the samples of each user; None if the set has no users.
        notes: counts of what loading left out or repaired.
        fingerprint: hash of what the samples do not show: the contents of image files, and names
            of classes; empty if there is nothing of this kind.
        read_files: as of `Federation`.
    """

    train: Examples
    test: Examples
    class_names: tuple[str, ...]
    input_spec: InputSpec
    users: tuple[ClientIndices, ...] | None = None
    notes: dict[str, int] = dataclasses.field(default_factory=dict)
    fingerprint: str = ""
    read_files: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def federation(
        self,
        name: str,
        clients: Sequence[ClientIndices] | None = None,
        notes: dict[str, int] | None = None,
        new: Sequence[int] = (),
    ) -> Federation:
        """The federation of these samples.

        Args:
            name: its name.
            clients: how the samples are divided; by default each user is a client. Samples that
                the data set sets aside for validation become validation samples.
            notes: counts in place of those of the data set.
            new: the numbers of the clients that take no part in training.

        Raises:
            DataError: as `Federation`.
        """
        every = set_aside((self.users or ()) if clients is None else clients, self.train.held_out)
        training, new_ones = new_clients.split(every, new)
        return Federation(
            name=name,
            num_classes=len(self.class_names),
            class_names=self.class_names,
            input_spec=self.input_spec,
            train=self.train,
            test=self.test,
            clients=training,
            notes=self.notes if notes is None else notes,
            fingerprint=self.fingerprint,
            read_files=self.read_files,
            new_clients=new_ones,
        )

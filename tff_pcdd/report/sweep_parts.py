"""What reports of both kinds of sweeps have: runs and commands of a choice, title and terms."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tff_pcdd.data import DataConfig
from tff_pcdd.experiment.config import ExperimentConfig
from tff_pcdd.report import settings_table, terms
from tff_pcdd.results import by_client
from tff_pcdd.results.reading import Directory
from tff_pcdd.settings import describe
from tff_pcdd.text import name_of
from tff_pcdd.training.file_names import CONFIG, SUMMARY


def find_run(
    directory: Directory, pattern: str, name: str | None = None
) -> tuple[Path, Mapping[str, Any]] | None:
    """The config.json of one of the runs, or of those in the folder of a point or a method."""
    for folder in directory.folders(pattern):
        if name not in (None, folder.parent.name):
            continue
        if (settings := directory.load(folder / CONFIG)) is not None:
            return folder / CONFIG, settings
    return None


def config_of(
    directory: Directory, pattern: str, name: str | None = None
) -> ExperimentConfig | None:
    """The settings of such a run."""
    run = find_run(directory, pattern, name)
    return None if run is None else settings_table.configuration(run[1])


def held_out(directory: Directory, pattern: str) -> int:
    """About how many samples such a run holds out; 0 if it is unknown."""
    return next(map(by_client.held_out, directory.folders(pattern)), 0)


class Models(NamedTuple):
    """Models of a method that the answer recommends.

    Attributes:
        what: which models.
        why: why these, although another method leads; else empty.
        flags: the flags of `tasks.export` for them.
    """

    what: str
    why: str
    flags: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Command:
    """What to do with chosen settings.

    Attributes:
        chosen: the point or the method.
        text: the command, as it is typed where the sweep was started.
        asked: what it does, in words.
        recommended: which of the method's models the answer recommends; None for none.
    """

    chosen: str
    text: str
    asked: str
    recommended: Models | None = None


def command(
    directory: Directory,
    pattern: str,
    chosen: str,
    flagfile: str,
    name: str = "best",
    recommended: Models | None = None,
) -> Command:
    """Exports a finished run of a point or a method; trains if there is none."""
    run = find_run(directory, pattern, chosen)
    if run is None:
        text = settings_table.chosen_command(directory.path / flagfile, name)
        asked = "train with the chosen settings; give the other settings again"
    elif _is_usable(directory, run[0].parent):
        seed = name_of(run[1].get("seed", "?"))
        # Training again would compute this very run.
        further = recommended.flags if recommended else []
        text = settings_table.export_command(*run, name, further)
        asked = f"export the models of the run with the chosen settings and seed {seed}"
    else:
        text = settings_table.saved_command(*run, name)
        asked = "train with the chosen settings and the same data"
    return Command(name_of(chosen), text, asked, recommended)


def _is_usable(directory: Directory, folder: Path) -> bool:
    """Whether a run has finished and has not diverged."""
    if not (folder / SUMMARY).is_file():
        return False
    summary = directory.load(folder / SUMMARY)
    return summary is not None and not summary.get("diverged")


def title_of(what: str, config: ExperimentConfig | None, tried: Collection[str] = ()) -> str:
    """The title; its data are what all points share, where settings of the data were tried."""
    if config is None or "dataset" in tried:
        return f"Sweep of {what}"
    varied = {setting.name for setting in describe(DataConfig)} & {*tried}
    data = config.data.describe_dataset() if varied else config.data.describe()
    return f"Sweep of {what} on {data}"


def terms_of(title: str, config: ExperimentConfig | None, va: str) -> list[tuple[str, str]]:
    """What accuracies are, and the partition if the title names it; `va` has decided."""
    named = config is not None and config.data.partition.describe() in title
    return terms.shown((va, "GA", "PA"), [config] if named else ())


# The keys of the accuracies of the models that a sweep leads to, and of what PA depends on.
FINAL = ("ga_final", "pa_final", "personal_epochs")

"""How published results were computed: the command, the machine, the time and the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from publication import held_out
from publication.published import CURVES, FINAL, HELD_OUT, RECORD, TUNING, Published
from tff_pcdd.studies import tuning


def described(one: Published) -> str:
    """A list of what is known about the runs of a sweep, for a page in its folder."""
    record, calls = one.record, one.record["calls"]
    command = _called(calls)
    lines = [f"- Settings: {_settings(record)}"]
    if command:
        times = f", called {len(calls)} times; each call goes on where the one before was ended"
        lines.append(f"- Command: {command}{times if len(calls) > 1 else ''}")
    else:
        lines.append("- Command, machine and commit were not recorded.")
    lines += [f"- Commit {machine}" for machine in _machines(calls)]
    for part in record.get("added", ()):
        command = _called(part["calls"]) or "a command that was not recorded"
        where = "".join(f"; commit {machine}" for machine in _machines(part["calls"]))
        lines.append(f"- Computed later: {', '.join(part['methods'])}, by {command}{where}")
    whole = calls and not calls[0]["resumed"] and all("seconds" in call for call in calls)
    wall = f"; the command took {hours(sum(c['seconds'] for c in calls))}" if whole else ""
    if calls and not whole:
        wall = "; of the command, it was not recorded completely"
    seeds = ", ".join(map(str, record["seeds"]))
    lines.append(
        f"- Time: {hours(record['seconds_of_rounds'])} for the rounds of all runs, added up, "
        f"without evaluation{wall}. Runs: {len(one.trials)} settings with seed {seeds}"
        f"{_halving(calls)}, and {len(one.results)} final ones"
    )
    digests = ", ".join(
        f"seed {seed} `{digest[:16]}…`" for seed, digest in record["data_sha256"].items() if digest
    )
    if digests:
        lines.append(f"- SHA-256 of the data and their division among clients: {digests}")
    criterion = calls[-1].get("criterion", "va") if calls else "va"
    if agreement := held_out.described(one.held_out, criterion):
        lines.append(f"- {agreement}")
    lines.append(f"- Files: {_files(one)}")
    return "\n".join(lines)


def _machines(calls: Sequence[Mapping[str, Any]]) -> list[str]:
    """The commits and machines of the calls of a sweep."""
    return [
        f"{call['commit'] or 'unknown'}, version {call['version']}, on "
        f"{call['cores']} cores of {call['cpu']} with {call['memory_gib']:g} GiB; TensorFlow "
        f"{call['tensorflow']}, TFF {call['tensorflow_federated']}, Python {call['python']}"
        for call in {(c["commit"], c["cpu"], c["cores"]): c for c in calls}.values()
    ]


def _settings(record: Mapping[str, Any]) -> str:
    """What the runs of a sweep have in common, but for the division of the data."""
    settings = record["settings"]
    optimizer = ", ".join(
        f"{name.removeprefix('client_').replace('_', ' ')} {value:g}"
        for name in ("client_momentum", "client_weight_decay", "client_clip_norm")
        if (value := settings.get(name)) is not None
    )

    def said(name: str, text: str, otherwise: str) -> str:
        """A setting in words; what the runs do not share differs between methods."""
        value = settings.get(name)
        return f"{otherwise} that differ between methods" if value is None else text.format(value)

    width = said("projection_dim", "{} linear features", "numbers of linear features")
    epochs = said("local_epochs", "{} local epochs", "numbers of local epochs")
    batches = said("batch_size", "batches of {}", "batches of sizes")
    local = said("client_optimizer", "{}", "local optimizers")
    everyone = settings.get("clients_per_round") == 0
    cohort = said("clients_per_round", "{} clients", "numbers of clients")
    return (
        f"{record['model']} with {width} before the head, {epochs} in {batches}, "
        f"{local}{f' with {optimizer}' if optimizer else ''}; "
        f"{'all clients' if everyone else cohort} in each round"
    )


def _halving(calls: Sequence[Mapping[str, Any]]) -> str:
    """When settings were stopped early; empty if that was not recorded."""
    if not (shares := rungs(calls)):
        return ""
    each = "method" if competing(calls) == tuning.ALL else "method and learning rate"
    return (
        f", of which the best 1/{calls[-1]['reduction']:g} per {each} went on after "
        f"{shares} of the rounds"
    )


def rungs(calls: Sequence[Mapping[str, Any]]) -> str:
    """The shares of the rounds after which settings were stopped; empty without any."""
    return (
        " and ".join(f"{100 * float(share):g} %" for share in calls[-1]["rungs"]) if calls else ""
    )


def competing(calls: Sequence[Mapping[str, Any]]) -> str:
    """Which settings of a method competed; those of earlier versions, all of them."""
    return calls[-1].get("halving", tuning.ALL) if calls else tuning.ALL


def in_short(one: Published) -> str:
    """The command, commits, time and files of a sweep in one line, for a page beside its folder."""
    commits = ", ".join(dict.fromkeys(c["commit"] or "unknown" for c in one.record["calls"]))
    by = f", commit {commits}" if commits else ""
    time = hours(one.record["seconds_of_rounds"])
    command = _called(one.record["calls"]) or "the command was not recorded"
    files = _files(one, f"{one.name}/")
    return f"{one.name}: {command}{by}; {time} for the rounds of all runs; {files}"


def _called(calls: Sequence[Mapping[str, Any]]) -> str:
    """The last command that computed a sweep; empty if it was not recorded."""
    if not calls:
        return ""
    return f"`.venv/bin/python -m {' '.join(['tasks.sweep', *calls[-1]['arguments']])}`"


def _files(one: Published, folder: str = "") -> str:
    """Links to the files of a sweep in `folder`, a path from the page that ends with a slash."""
    names = (RECORD, FINAL, TUNING, CURVES, *([HELD_OUT] if one.held_out else []))
    return ", ".join(f"[{file}]({folder}{file})" for file in names)


def hours(seconds: float) -> str:
    """A time in hours, or in minutes if it is shorter than an hour."""
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"

"""How published results were computed: the command, the machine, the time and the files."""

from __future__ import annotations

from tff_pcdd.report.published import CURVES, FINAL, RECORD, TUNING, Published


def described(one: Published, folder: str) -> str:
    """A list of what is known about the runs of a sweep.

    Args:
        one: the results.
        folder: the path of the directory of all results, from the page.
    """
    record, calls = one.record, one.record["calls"]
    command = _command(one)
    lines = [
        f"- Command: {command}" if command else "- Command, machine and commit were not recorded."
    ]
    for call in {(c["commit"], c["cpu"], c["cores"]): c for c in calls}.values():
        lines.append(
            f"- Commit {call['commit'] or 'unknown'}, version {call['version']}, on "
            f"{call['cores']} cores of {call['cpu']} with {call['memory_gib']:g} GiB; TensorFlow "
            f"{call['tensorflow']}, TFF {call['tensorflow_federated']}, Python {call['python']}"
        )
    whole = calls and not calls[0]["resumed"] and all("seconds" in call for call in calls)
    wall = f"; the command took {hours(sum(c['seconds'] for c in calls))}" if whole else ""
    if calls and not whole:
        wall = "; of the command, it was not recorded completely"
    seeds = ", ".join(map(str, record["seeds"]))
    lines.append(
        f"- Time: {hours(record['seconds_of_rounds'])} for the rounds of all runs, added up"
        f"{wall}. Runs: {len(one.trials)} settings with seed {seeds}, of which some were stopped "
        f"early, and {len(one.results)} final ones"
    )
    digests = ", ".join(
        f"seed {seed} `{digest[:16]}…`" for seed, digest in record["data_sha256"].items() if digest
    )
    if digests:
        lines.append(f"- SHA-256 of the data and their division among clients: {digests}")
    lines.append(f"- Files: {files(one, folder)}")
    return "\n".join(lines)


def in_short(one: Published, folder: str) -> str:
    """The command, the commits, the time and the files of a sweep in one line."""
    commits = ", ".join(dict.fromkeys(c["commit"] or "unknown" for c in one.record["calls"]))
    by = f", commit {commits}" if commits else ""
    time = hours(one.record["seconds_of_rounds"])
    command = _command(one) or "the command was not recorded"
    return f"{one.name}: {command}{by}; {time} for the rounds of all runs; {files(one, folder)}"


def _command(one: Published) -> str:
    """The last command that computed a sweep; empty if it was not recorded."""
    calls = one.record["calls"]
    if not calls:
        return ""
    return f"`.venv/bin/python -m {' '.join(['tasks.sweep', *calls[-1]['arguments']])}`"


def files(one: Published, folder: str) -> str:
    """Links to the files of a sweep."""
    names = (RECORD, FINAL, TUNING, CURVES)
    return ", ".join(f"[{file}]({folder}/{one.name}/{file})" for file in names)


def hours(seconds: float) -> str:
    """A time in hours, or in minutes if it is shorter than an hour."""
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"

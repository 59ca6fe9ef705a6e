"""Runs all cases and prints how many there were of each kind, and what came out."""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import multiprocessing
import os
import sys
import time
from pathlib import Path

from tests.faults import modules
from tests.faults.case import OUTCOMES, SILENT, TRACEBACK, Result


def table(results: list[Result]) -> str:
    """The numbers of cases by kind and outcome, as Markdown."""
    columns = (*OUTCOMES, SILENT, TRACEBACK)
    counts = collections.Counter((result.kind, result.outcome) for result in results)
    lines = [
        f"| fault | cases | {' | '.join(columns)} |",
        f"|---|--:|{'--:|' * len(columns)}",
    ]
    kinds = sorted({result.kind for result in results})
    for kind in kinds:
        row = [counts[kind, outcome] for outcome in columns]
        lines.append(f"| {kind} | {sum(row)} | {' | '.join(map(str, row))} |")
    totals = [sum(counts[kind, outcome] for kind in kinds) for outcome in columns]
    lines.append(f"| all | {len(results)} | {' | '.join(map(str, totals))} |")
    return "\n".join(lines)


def _write(path: Path, results: list[Result]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([dataclasses.asdict(result) for result in results], indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="Modules to run; all by default.")
    parser.add_argument("--sample", type=int, help="Cases of each kind; all by default.")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--output", type=Path, help="JSON file for the outcome of each case.")
    arguments = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    names = arguments.only or modules.names()
    results: list[Result] = []
    start = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(
        arguments.processes, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        futures = [pool.submit(modules.run, name, arguments.sample) for name in names]
        for future in concurrent.futures.as_completed(futures):
            name, found, seconds = future.result()
            failed = sum(result.failed for result in found)
            print(f"{name}: {len(found)} cases, {failed} failed, {seconds:.0f} s", flush=True)
            results += found
            if arguments.output:
                # Now, because the rest may be interrupted.
                _write(arguments.output, results)
    for result in results:
        if result.failed:
            print(f"\n{result.kind}, {result.name}: {result.outcome}\n{result.detail}")
    print(f"\n{table(results)}\n\n{time.monotonic() - start:.0f} s")
    sys.exit(any(result.failed for result in results))


if __name__ == "__main__":
    main()

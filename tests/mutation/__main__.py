"""Runs the quick tests on mutants of the package; see docs/quality.md.

    python -m tests.mutation --files tff_pcdd/methods --output build/mutation.csv

A mutant is a copy of one file with one small change (`operators`). Tests that fail kill it; a
mutant that no test kills shows something that no test checks. Importing TensorFlow takes longer
than most tests, so it is imported once, and a process is forked for each mutant before TensorFlow
has started anything. The package itself is imported in the forked process only, with the changed
file in place of the original, which stays untouched on disk.

A file of a method is tested by the tests whose names contain the method's name, and the files that
all methods use by all quick tests of methods; of tests that repeat the same training for every
method, six methods are enough. A file of `data` or `training` is tested by the quick tests of that
part, of which `--tests` may name some. Tests that killed most mutants run first, the others in the
order of their duration, until one fails. A test that takes ten times as long as usual ends the
process; the mutant counts as killed.

The table has a row per mutant. Mutants that it contains already are not run again as long as their
file is the same; `--again` runs the surviving ones again, after tests were added.
"""

from __future__ import annotations

import argparse
import ast
import collections
import gc
import importlib.abc
import importlib.util
import json
import os
import pathlib
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Mapping

from tests.mutation import table
from tests.mutation.operators import mutants

_ROOT = pathlib.Path(__file__).parents[2]
_QUICK = ["-m", "not slow and not integration", "-p", "no:cacheprovider", "-q"]
# Tests by the part of the package.
_FOLDERS = {
    "methods": ["tests/methods"],
    "federated": ["tests/federated", "tests/methods"],
    "data": ["tests/data"],
    "training": ["tests/training"],
}

# Tests of the files that all methods use.
_MODELS = "test_details|test_rounds_of_a_network|test_fairness|test_registry|test_weighting"
# Tests of a file, as a pattern of their names, if it is not the file's own name.
_TESTS = {
    "contract": _MODELS,
    "network": _MODELS,
    "records": f"{_MODELS}|clips_the_heads_apart",
    "aided": "prototypes|aided",
    "calibrated": "calibrat|retraining",
    "ccvr": "ccvr|retraining",
    "creff": "creff|retraining",
    "fednpc": "fednpc|retraining",
    "prototypes": "fedproto|fedproc|prototypes",
    "generator": "generator|adam|diversity|fedgen_adds",
    "fedgen": "fedgen|generator",
    "ratioloss": "ratio|monitor|decisive",
    "fednova": "fednova|feddc",
    "fedper": "fedper|fedrep",
}
_ALWAYS = "test_options"
# Tests that train every method alike take most of the time. For files of tff_pcdd/federated, which
# all methods use, they train these methods only.
_EVERY_METHOD = re.compile(
    "trains_like_single_operations|trains_as_without_the_calibration|clients_send_what_both_need|"
    "rounds_of_a_network|rounds_on_parabolas"
)
_ENOUGH = re.compile(r"\[(fedavg|scaffold|fedgela|fedmr|fedloge|fedrep)\b")


class _ChangedSource(importlib.abc.MetaPathFinder):
    """Imports one module of the package from a changed source.

    The source is a file of its own, because AutoGraph reads functions from the file of their module
    to translate them.
    """

    def __init__(self, path: pathlib.Path, source: str, folder: str) -> None:
        relative = path.relative_to(_ROOT).with_suffix("")
        self.name = ".".join(relative.parts).removesuffix(".__init__")
        # Modules of a package are found beside its unchanged file.
        self._locations = [str(path.parent)] if path.stem == "__init__" else None
        self._file = pathlib.Path(folder, path.name)
        self._file.write_text(source)

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(
            fullname, self._file, submodule_search_locations=self._locations
        )


class _Watch:
    """Ends the process when a test takes too long; notes durations and failures."""

    def __init__(self, durations: dict[str, float]) -> None:
        self._expected = durations
        self.durations: dict[str, float] = {}
        self.failures: list[str] = []

    def pytest_runtest_logstart(self, nodeid, location):
        signal.alarm(int(20 + 10 * self._expected.get(nodeid, 30)))

    def pytest_runtest_logreport(self, report):
        self.durations[report.nodeid] = self.durations.get(report.nodeid, 0) + report.duration
        if report.failed:
            self.failures.append(report.nodeid)


def _fork(changed: _ChangedSource | None, arguments: list[str], durations: dict[str, float]):
    """Runs pytest in a forked process; returns what it reported, or None if it was ended."""
    import pytest

    receiving, sending = os.pipe()
    child = os.fork()
    if not child:
        # A forked process must never return into the loop of its parent.
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(120)
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            if changed:
                sys.meta_path.insert(0, changed)
            watch = _Watch(durations)
            code = pytest.main([*_QUICK, *arguments], plugins=[watch])
            result = {
                "code": int(code),
                "failures": watch.failures,
                "durations": watch.durations,
                "imported": changed is None or changed.name in sys.modules,
            }
            with os.fdopen(sending, "w") as file:
                json.dump(result, file)
        finally:
            os._exit(0)
    os.close(sending)
    with os.fdopen(receiving) as file:
        text = file.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def _preload() -> None:
    """Imports what takes long, without the package, and without starting TensorFlow's runtime."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    # TFF can be imported after it. Each forked process imports it anew.
    importlib.import_module("tff_pcdd")
    for name in (
        "matplotlib.pyplot",
        "pytest",
        "sklearn.manifold",
        "tensorflow",
        "tensorflow.keras",
        "tensorflow.python.autograph",
        "tensorflow_federated",
    ):
        importlib.import_module(name)
    for name in [name for name in sys.modules if name.partition(".")[0] == "tff_pcdd"]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()


def _measure(folders: list[str], memory: pathlib.Path) -> dict[str, float]:
    """Seconds that each quick test takes on the original files, the shortest first.

    `memory` keeps them for as long as neither the tests nor the package change.
    """
    files = sorted([*_ROOT.glob("tests/**/*.py"), *_ROOT.glob("tff_pcdd/**/*.py")])
    texts = b"".join(p.read_bytes() for p in files if p.parent != pathlib.Path(__file__).parent)
    digest = importlib.util.source_hash(texts).hex() + " ".join(folders)
    known = json.loads(memory.read_text()) if memory.exists() else {}
    if known.get("digest") == digest:
        return known["durations"]
    result = _fork(None, folders, {})
    if not result or not result["durations"]:
        raise SystemExit("the tests do not run without a mutant")
    for name in result["failures"]:
        print(f"fails without a mutant and is left out: {name}")
        result["durations"].pop(name, None)
    durations = dict(sorted(result["durations"].items(), key=lambda item: item[1]))
    memory.write_text(json.dumps({"digest": digest, "durations": durations}))
    return durations


def _part(path: pathlib.Path) -> str:
    """The part of the package that a file belongs to."""
    return path.relative_to(_ROOT / "tff_pcdd").parts[0]


def _tests_of(
    path: pathlib.Path, durations: dict[str, float], kills: Mapping[str, int]
) -> list[str]:
    """The tests of a file, by how many mutants each killed and in the order of their durations."""
    part = _part(path)
    name = _TESTS.get(path.stem, path.stem) if part == "methods" else ""
    pattern = re.compile(f"{name}|{_ALWAYS}" if name else "")
    found = [t for t in durations if t.startswith(tuple(_FOLDERS[part])) and pattern.search(t)]
    # They build each method's computations twice, which takes longer than all its other tests.
    found = [t for t in found if path.stem == "aided" or "test_aided" not in t]
    if part == "federated":
        found = [t for t in found if not _EVERY_METHOD.search(t) or _ENOUGH.search(t)]
    return sorted(found, key=lambda test: (-kills.get(test, 0), durations[test]))


def _run(
    path: pathlib.Path, source: str, durations: dict[str, float], kills: Mapping[str, int]
) -> dict[str, object]:
    """The outcome of a changed source: killed, timeout or survived."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tests = _tests_of(path, durations, kills)
        result = _fork(_ChangedSource(path, source, folder), ["-x", *tests], durations)
    if result is None:
        outcome, by = "timeout", ""
    else:
        if not result["imported"] and result["code"] == 0:
            raise SystemExit(f"no test of {path.name} imports it")
        outcome = "killed" if result["code"] else "survived"
        by = (result["failures"] or ["import" if result["code"] else ""])[0]
    return {"outcome": outcome, "by": by, "seconds": round(time.monotonic() - started, 1)}


def _check_controls(rows: list[dict[str, object]], durations: dict[str, float]) -> None:
    """Runs the tests of files without survivors on their original source, which must survive."""
    survivors = {row["file"] for row in rows if row["outcome"] == "survived"}
    for name in sorted({str(row["file"]) for row in rows} - survivors):
        path = _ROOT / name
        result = _run(path, ast.unparse(ast.parse(path.read_text())), durations, {})
        if result["outcome"] != "survived":
            raise SystemExit(f"{name}: {result['by']} fails without a mutant, in this order")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("--files", nargs="+", default=["tff_pcdd/methods"], help="files or folders")
    parser.add_argument("--sample", type=int, help="number of mutants drawn; all by default")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("build/mutation.csv"))
    parser.add_argument(
        "--tests", nargs="+", help="folders or files of tests, instead of all that fit"
    )
    parser.add_argument("--again", action="store_true", help="run surviving mutants again")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    options = parser.parse_args()

    paths = [
        path
        for given in map(_ROOT.joinpath, options.files)
        for path in ([given] if given.is_file() else sorted(given.glob("*.py")))
    ]
    todo = []
    for path in paths:
        source = path.read_text()
        name = path.relative_to(_ROOT).as_posix()
        digest = importlib.util.source_hash(source.encode()).hex()
        todo += [
            (path, mutant, table.make_row(name, digest, number, mutant))
            for number, mutant in enumerate(mutants(source))
        ]
    if options.sample is not None and options.sample < len(todo):
        chosen = random.Random(options.seed).sample(range(len(todo)), options.sample)
        # In the order of the draw, so that an interrupted run is a smaller sample.
        todo = [todo[index] for index in chosen]
    if options.list:
        for path, mutant, _ in todo:
            print(f"{path.name}:{mutant.line}: {mutant.operator}: {mutant.before} → {mutant.after}")
        return

    known = {table.key_of(row): row for row in table.read(options.output)}
    if options.again:
        known = {key: row for key, row in known.items() if row["outcome"] != "survived"}
    options.output.parent.mkdir(parents=True, exist_ok=True)

    _preload()
    missing = [item for item in todo if table.key_of(item[2]) not in known]
    fitting = {folder for path, _, _ in missing for folder in _FOLDERS[_part(path)]}
    folders = options.tests or fitting
    memory = options.output.with_suffix(".durations.json")
    durations = _measure(sorted(folders), memory) if missing else {}
    for number, (path, mutant, row) in enumerate(missing, 1):
        kills = collections.Counter(str(old["by"]) for old in known.values())
        row |= _run(path, mutant.source, durations, kills)
        known[table.key_of(row)] = row
        print(f"{number}/{len(missing)} {row['file']}:{row['line']} {row['outcome']}", flush=True)
        table.write(options.output, list(known.values()))
    _check_controls([row for _, _, row in missing], durations)
    print(table.summarize([known[table.key_of(row)] for _, _, row in todo]))


if __name__ == "__main__":
    main()

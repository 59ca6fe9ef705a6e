"""Lists the licences of what the locks hold.

    python -m tests.licences .venv .venv-serving .venv-docs

writes docs/licences.md from the metadata of the packages that are installed in these environments.
"""

from __future__ import annotations

import collections
import importlib.metadata
import re
import sys
from collections.abc import Iterable
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "licences.md"

# SPDX identifiers of what older metadata spell out.
_SPDX = {
    "apache software license": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "3-clause bsd license": "BSD-3-Clause",
    "bsd license": "BSD",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
}
# Those whose metadata name none; read in their repositories.
_READ = {"namex": "Apache-2.0"}

_HEAD = """# Licences

This package has the Apache License 2.0. The table lists the licences of all packages that the locks
for installation, the server and the site hold, as their metadata state them. None of them restricts
what you may do with a model that you train. `make install GPU=1` also installs NVIDIA's CUDA
libraries, which have [NVIDIA's own licence](https://docs.nvidia.com/cuda/eula/).

| licence | packages |
|---|---|
"""


def licence_of(distribution: importlib.metadata.Distribution) -> str:
    """The licence of an installed package, as an SPDX expression where the metadata allow it."""
    data = distribution.metadata
    if "License-Expression" in data:
        return data["License-Expression"]
    names = [c.rpartition(" :: ")[2] for c in data.get_all("Classifier", []) if "License ::" in c]
    names = [n for n in names if n != "OSI Approved"]
    names = names or (data.get("License") or "").strip().splitlines()[:1]
    found = sorted({_SPDX.get(name.lower(), name) for name in names})
    return " OR ".join(found) or _READ[data["Name"]]


def page(environments: Iterable[Path]) -> str:
    """The page for the packages that are installed in environments."""
    packages = collections.defaultdict(set)
    for environment in environments:
        (folder,) = environment.glob("lib/python3*/site-packages")
        for distribution in importlib.metadata.distributions(path=[str(folder)]):
            name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()
            if name != "tff-pcdd":
                packages[licence_of(distribution)].add(name)
    rows = (f"| {licence} | {', '.join(sorted(names))} |\n" for licence, names in packages.items())
    return _HEAD + "".join(sorted(rows, key=str.lower))


if __name__ == "__main__":
    PAGE.write_text(page(map(Path, sys.argv[1:])), encoding="utf-8")

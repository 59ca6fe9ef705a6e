"""Publishes sweeps over methods: docs/comparison.md, and the folders and pages beside it.

    python -m publication
    python -m publication --sweep_dirs=runs/comparison/digits_p10c2

What the pages need of each finished sweep is written to a folder of the sweep's name. Then the
pages are made from all folders; without --sweep_dirs, nothing else is done. With --add_methods,
sweeps over a few methods join what has been published under their names.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tff_pcdd.cli import program
from tff_pcdd.cli.flags import Flags
from tff_pcdd.errors import SettingError

_GROUP = "Publication"


def define(flags: Flags) -> None:
    """Defines the program's flags."""
    flags.add(list, "sweep_dirs", None, "Directories of sweeps over methods.", _GROUP)
    flags.add(
        str,
        "publish_dir",
        "docs/comparison",
        "Directory of the folders; the main page is beside it and has its name, with the suffix "
        ".md.",
        _GROUP,
    )
    flags.add(
        bool,
        "add_methods",
        False,
        "Keep the other methods that have been published under the name of a sweep, and add those "
        "of the sweep, or replace them.",
        _GROUP,
    )


def main(flags: Flags) -> None:
    """Publishes sweeps, and makes the pages about all that have been published."""
    publish_dir = flags.required("publish_dir")
    if flags["add_methods"] and not flags["sweep_dirs"]:
        raise SettingError("add_methods", True, "needs the sweeps to add; set sweep_dirs")
    from publication import publishing, writing

    for sweep_dir in flags["sweep_dirs"] or ():
        print(publishing.publish(sweep_dir, publish_dir, add_methods=flags["add_methods"]))
    page, missing = writing.write(publish_dir)
    for line in missing:
        print(f"not explained: {line}", file=sys.stderr)
    print(page)


def run(argv: Sequence[str] | None = None) -> None:
    """Runs the program."""
    program.run(__doc__, define, main, argv)


if __name__ == "__main__":
    sys.argv[0] = "publication"
    run()

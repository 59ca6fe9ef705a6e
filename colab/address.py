"""Writes the address of the repository wherever it stands.

python colab/address.py https://github.com/USER/NAME       (`make address` passes the Makefile's)

The notebooks install the package from there, and they and the tutorials link to Colab, which opens
notebooks of repositories on GitHub only.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = ("CITATION.cff", "Makefile", "docs/tutorials/index.md", "mkdocs.yml", "pyproject.toml")
NOTEBOOKS = "colab/*.ipynb"

_ADDRESS = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+(?<!\.git))")


def replace(new: str, root: Path = ROOT) -> None:
    """Replaces the address that pyproject.toml states by another one, in all files that have it.

    Args:
        new: https://github.com/USER/NAME.
        root: a clone of the repository.

    Raises:
        ValueError: the address has another form.
    """
    match = _ADDRESS.fullmatch(new)
    if match is None:
        raise ValueError(f"{new!r} is no address like https://github.com/USER/NAME")
    old = _ADDRESS.search((root / "pyproject.toml").read_text(encoding="utf-8"))
    # On GitHub and on Colab, whose addresses contain github.com/ and github/.
    stated = re.compile(rf"\b(github(?:\.com)?/){re.escape(old[1])}(?![\w-])")
    for path in [*(root / name for name in FILES), *root.glob(NOTEBOOKS)]:
        text = path.read_text(encoding="utf-8")
        changed = stated.sub(rf"\g<1>{match[1]}", text)
        if changed != text:
            path.write_text(changed, encoding="utf-8")


if __name__ == "__main__":
    try:
        replace(" ".join(sys.argv[1:]))
    except ValueError as error:
        sys.exit(str(error))

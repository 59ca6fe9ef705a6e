"""The programs of `tff_pcdd.cli`, each run as `python -m tasks.<name>` in a clone.

`python -m` puts the working directory first on the module path, so that a file numpy.py in it would
be imported in the place of NumPy. Here, which is before any other import, it is taken off the path
again. This project's packages are then found in the clone that these programs belong to.
"""

import os
import sys
from importlib.machinery import PathFinder

_CLONE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# What a clone contains; the last two are no part of an installed package.
_PACKAGES = ("tff_pcdd", "benchmarks", "publication")


class _Clone:
    """Finds the packages of the clone, which need not be installed."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, [_CLONE]) if name in _PACKAGES else None


# While `python -m` looks for the program, "-m" stands for its name.
if sys.argv[0] == "-m":
    # Python 3.10, which is refused, does not have it.
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]
    sys.meta_path.insert(0, _Clone)

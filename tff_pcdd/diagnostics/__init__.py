"""The geometry of features and classifiers: numbers and pictures that show why a method works.

Importing this package imports no TensorFlow; its names are loaded when they are first used.
"""

from etils import epy

with epy.lazy_api_imports(globals()):
    from tff_pcdd.diagnostics.measurement import Diagnostics, View, choose_clients

__all__ = ["Diagnostics", "View", "choose_clients", "names"]


def names() -> tuple[str, ...]:
    """What can be measured, in the order of the columns; see docs/how-to/diagnostics.md."""
    return ("angles", "alignment", "eigen", "nc", "norms", "features", "pruning", "tsne")

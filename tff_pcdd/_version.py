"""The version of the package, stated here and nowhere else in the code."""

__version__ = "0.1.0"

"""For tools that look for this file: pyproject.toml states everything."""

from setuptools import setup

setup()

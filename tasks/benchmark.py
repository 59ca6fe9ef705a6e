"""`python -m tasks.benchmark`; see `benchmarks.__main__`."""

from benchmarks.__main__ import run

if __name__ == "__main__":
    run()

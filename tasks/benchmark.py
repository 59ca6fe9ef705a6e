"""`python -m tasks.benchmark`; see `tff_pcdd.cli.benchmark`."""

from tff_pcdd.cli.benchmark import run

if __name__ == "__main__":
    run()

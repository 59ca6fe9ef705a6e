"""`python -m tasks.partition`; see `tff_pcdd.cli.partition`."""

from tff_pcdd.cli.partition import run

if __name__ == "__main__":
    run()

"""`python -m tasks.runs`; see `tff_pcdd.cli.runs`."""

from tff_pcdd.cli.runs import run

if __name__ == "__main__":
    run()

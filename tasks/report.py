"""`python -m tasks.report`; see `tff_pcdd.cli.report`."""

from tff_pcdd.cli.report import run

if __name__ == "__main__":
    run()

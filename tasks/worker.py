"""`python -m tasks.worker`; see `tff_pcdd.cli.worker`."""

from tff_pcdd.cli.worker import run

if __name__ == "__main__":
    run()

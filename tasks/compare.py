"""`python -m tasks.compare`; see `tff_pcdd.cli.compare`."""

from tff_pcdd.cli.compare import run

if __name__ == "__main__":
    run()

"""`python -m tasks.evaluate`; see `tff_pcdd.cli.evaluate`."""

from tff_pcdd.cli.evaluate import run

if __name__ == "__main__":
    run()

"""`python -m tasks.train`; see `tff_pcdd.cli.train`."""

from tff_pcdd.cli.train import run

if __name__ == "__main__":
    run()

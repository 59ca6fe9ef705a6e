"""`python -m tasks.export`; see `tff_pcdd.cli.export`."""

from tff_pcdd.cli.export import run

if __name__ == "__main__":
    run()

"""`python -m tasks.sweep`; see `tff_pcdd.cli.sweep`."""

from tff_pcdd.cli.sweep import run

if __name__ == "__main__":
    run()

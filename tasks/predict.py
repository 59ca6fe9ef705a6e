"""`python -m tasks.predict`; see `tff_pcdd.cli.predict`."""

from tff_pcdd.cli.predict import run

if __name__ == "__main__":
    run()

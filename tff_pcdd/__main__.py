"""`python -m tff_pcdd`; see `tff_pcdd.cli.front_door`."""

from tff_pcdd.cli.front_door import run

if __name__ == "__main__":
    run()

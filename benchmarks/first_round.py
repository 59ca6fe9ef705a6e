"""Runs tasks.train; also prints a line after each round and at the end, where it waits for another.

python -m benchmarks.first_round --rounds=1 --output_dir=DIR
"""

import atexit
import sys
from unittest import mock

from benchmarks.startup import FIRST_ROUND, LAST_LINE
from tff_pcdd import heavy
from tff_pcdd.cli import train


def wait_at_the_end() -> None:
    """Waits until the benchmark has looked at this process."""
    print(LAST_LINE, flush=True)
    sys.stdin.readline()


def main():
    """Runs tasks.train and prints a line after every round."""
    # As the program does it; the module of simulations would import them otherwise.
    heavy.own_process()
    heavy.load("tensorflow", "tensorflow_federated")
    from tff_pcdd.training import Simulation

    next_round = Simulation.next_round

    def announced(simulation):
        metrics = next_round(simulation)
        print(FIRST_ROUND, flush=True)
        return metrics

    atexit.register(wait_at_the_end)
    with mock.patch.object(Simulation, "next_round", announced):
        train.run()


if __name__ == "__main__":
    main()

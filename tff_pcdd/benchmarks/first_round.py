"""Runs tasks.train; also prints a line after each round, and the peak memory at the end.

python -m tff_pcdd.benchmarks.first_round --rounds=1 --output_dir=DIR
"""

import atexit
import os
from unittest import mock

from tff_pcdd import heavy
from tff_pcdd.benchmarks.processes import peak_memory
from tff_pcdd.benchmarks.startup import FIRST_ROUND, PEAK_MEMORY
from tff_pcdd.cli import train


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

    atexit.register(lambda: print(PEAK_MEMORY, peak_memory(os.getpid()), flush=True))
    with mock.patch.object(Simulation, "next_round", announced):
        train.run()


if __name__ == "__main__":
    main()

"""tasks.train with a stopwatch: says on stdout when the first round is finished, and its memory.

python -m benchmarks.first_round --rounds=1 --output_dir=DIR
"""

import atexit
import os

from benchmarks.processes import peak_memory
from benchmarks.startup import FIRST_ROUND, PEAK_MEMORY
from tasks import train


def main():
    """Runs tasks.train, with a line after every round."""
    from tff_pcdd.training.experiment import Experiment

    next_round = Experiment.next_round

    def announced(experiment):
        metrics = next_round(experiment)
        print(FIRST_ROUND, flush=True)
        return metrics

    Experiment.next_round = announced
    # Not what `getrusage` says: that starts with the memory of the process that forked this one.
    atexit.register(lambda: print(PEAK_MEMORY, peak_memory(os.getpid()), flush=True))
    train.run()


if __name__ == "__main__":
    main()

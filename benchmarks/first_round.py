"""tasks.train with a stopwatch: says on stdout when the first round is finished.

python -m benchmarks.first_round --rounds=1 --output_dir=DIR
"""

from benchmarks.startup import FIRST_ROUND
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
    train.run()


if __name__ == "__main__":
    main()

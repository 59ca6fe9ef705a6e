"""The work of `tasks.train --rounds=1` on digits as a plain TensorFlow program.

    python -m benchmarks.plain_program

It does what the text of section `startup` says, and no more.
"""

import argparse
import functools
import sys

from benchmarks import plain
from benchmarks.startup import FIRST_ROUND, LAST_LINE
from tff_pcdd import data, methods, models
from tff_pcdd.federated import SGD, TrainingSpec

_MODEL, _FEATURES = "simple_cnn", 84


def make_spec(federation: data.Federation, local_epochs: int) -> TrainingSpec:
    """What tasks.train computes by default."""
    make_backbone = functools.partial(models.create(_MODEL).build, federation.input_spec.shape)
    task = methods.TaskSpec(
        federation.num_classes, _FEATURES, make_backbone, federation.class_counts()
    )
    return TrainingSpec(
        methods.create("fedavg"), task, federation.input_spec, SGD(), local_epochs=local_epochs
    )


def main() -> None:
    """Prints a line after the round, and then the accuracy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--local_epochs", type=int, default=5)
    parser.add_argument("--max_train_samples", type=int)
    parser.add_argument("--max_test_samples", type=int)
    sizes = vars(parser.parse_args())
    local_epochs = sizes.pop("local_epochs")

    federation = data.load_federation("digits", "class", **sizes)
    clients = [federation.client_examples(k)[0] for k in range(federation.num_clients)]
    loop = plain.PlainLoop(make_spec(federation, local_epochs), clients)
    loop.next()
    print(FIRST_ROUND, flush=True)
    print(f"accuracy: {100 * loop.accuracy(federation.test):.2f} %")
    print(LAST_LINE, flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()

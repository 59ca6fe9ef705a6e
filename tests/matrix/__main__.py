"""Prints the numbers of combinations, the reasons of refusals, and the settings of training."""

from __future__ import annotations

import collections
import math

from tests.matrix import combinations, profiles
from tests.matrix.combinations import AXES, refusal


def main() -> None:
    everything = combinations.cells()
    print(f"{' × '.join(AXES)}: {len(everything)} = ", end="")
    print(" · ".join(str(len(values)) for values in AXES.values()))
    assert len(everything) == math.prod(map(len, AXES.values()))
    refused = [cell for cell in everything if refusal(cell)]
    reasons = collections.Counter(refusal(cell).reason for cell in refused)
    print(f"refused at the start: {len(refused)}; trained: {len(everything) - len(refused)}")
    for reason, number in reasons.most_common():
        print(f"{number:6d}  {reason}")
    sample = combinations.sample()
    print(f"sample in which every pair occurs: {len(sample)}")
    print("methods that meet each setting of training, of all combinations and of the sample:")
    trained = [cell for cell in everything if not refusal(cell)]
    both = profiles.methods_by_value(trained), profiles.methods_by_value(sample)
    for axis, values in profiles.AXES.items():
        for value in values:
            print("{:6d} {:6d}  {}={}".format(*(len(m[axis, value]) for m in both), axis, value))


if __name__ == "__main__":
    main()

"""What this machine can compute: part of section `local_step`, in a process of its own.

`python -m benchmarks.peak THREADS QUICK` prints as JSON the floating-point operations per
second of large products, and the bytes per second that an addition of large vectors moves, with the
given number of threads in an operation. The fastest of several calls counts.
"""

from __future__ import annotations

import json
import os
import sys

from benchmarks import measure

_REPEATS = 10


def peaks(size: int, repeats: int) -> dict[str, float]:
    """Measures the peaks.

    Args:
        size: rows of the matrices; other sizes are derived from it.
        repeats: calls of each kind.
    """
    import tensorflow as tf

    def rate(work: float, call) -> float:
        call()
        return work / min(measure.time_call(call) for _ in range(repeats))

    found = {}
    for dtype in (tf.float32, tf.bfloat16):
        a = tf.cast(tf.random.normal([size, size]), dtype)
        found[f"matmul_{dtype.name}"] = rate(2 * size**3, lambda a=a: tf.matmul(a, a))
        x = tf.cast(tf.random.normal([size // 64, 18, 18, 128]), dtype)
        w = tf.cast(tf.random.normal([3, 3, 128, 128]), dtype)
        found[f"conv_{dtype.name}"] = rate(
            2 * (size // 64) * 16 * 16 * 9 * 128 * 128,
            lambda x=x, w=w: tf.nn.conv2d(x, w, 1, "VALID"),
        )
    # Larger than the caches: two vectors are read and one is written.
    vector = tf.random.normal([16 * size * size])
    other = tf.random.normal(vector.shape)
    found["traffic"] = rate(3 * 4 * 16 * size * size, lambda: vector + other)
    return found


if __name__ == "__main__":
    threads, is_quick = map(int, sys.argv[1:])
    os.environ["TF_NUM_INTRAOP_THREADS"] = str(threads)
    print(json.dumps(peaks(*((128, 1) if is_quick else (2048, _REPEATS)))))

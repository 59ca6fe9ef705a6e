"""What a GPU can compute: part of section `gpu_speed`, in a process of its own.

`python -m benchmarks.gpu.card_peak QUICK` prints as JSON the floating-point operations per second
of a large matrix product and of a convolution, by precision. The fastest of several calls counts.
"""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable

# Calls that are waited for together: a single one is as short as the wait.
_CALLS, _REPEATS = 10, 5


def peaks(size: int, side: int, batch: int) -> dict[str, float]:
    """Measures the peaks.

    Args:
        size: rows and columns of the matrices.
        side: height, width and number of channels of the images of a 3×3 convolution.
        batch: number of images.
    """
    import tensorflow as tf

    def rate(work: float, call: Callable[[], tf.Tensor]) -> float:
        fastest = float("inf")
        call()
        for _ in range(_REPEATS):
            tf.test.experimental.sync_devices()
            start = time.perf_counter()
            for _ in range(_CALLS):
                call()
            tf.test.experimental.sync_devices()
            fastest = min(fastest, (time.perf_counter() - start) / _CALLS)
        return work / fastest

    found = {}
    for precision in ("float32", "tf32", "bfloat16"):
        tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")
        dtype = tf.bfloat16 if precision == "bfloat16" else tf.float32
        a = tf.cast(tf.random.normal([size, size]), dtype)
        found[f"matmul_{precision}"] = rate(2 * size**3, functools.partial(tf.matmul, a, a))
        x = tf.cast(tf.random.normal([batch, side, side, side]), dtype)
        w = tf.cast(tf.random.normal([3, 3, side, side]), dtype)
        work = 2 * batch * side * side * 9 * side * side
        try:
            found[f"conv_{precision}"] = rate(
                work, functools.partial(tf.nn.conv2d, x, w, 1, "SAME")
            )
        except tf.errors.OpError as error:
            print(f"no peak of the convolution in {precision}: {error}", file=sys.stderr)
    return found


if __name__ == "__main__":
    is_quick = bool(int(sys.argv[1]))
    # 1.1 and 1.2 TFLOP; cuDNN takes tensors of less than 2³¹ elements.
    print(json.dumps(peaks(*((128, 16, 2) if is_quick else (8192, 128, 256)))), flush=True)

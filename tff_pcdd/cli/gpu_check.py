"""What `tff-pcdd doctor` finds, and what it says of GPUs: one line if there is none."""

from __future__ import annotations

import importlib.metadata
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tff_pcdd import machine, stack

OK, OPTIONAL, WRONG = "ok", "--", "!!"

_INSTALL = 'make install GPU=1, or pip install "tff_pcdd[gpu]"'
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
# TF32 and fast bfloat16 came with it.
_AMPERE = (8, 0)


class Finding(NamedTuple):
    """What was found.

    Attributes:
        state: `OK`, `OPTIONAL` or `WRONG`.
        text: one line, with what to do unless the state is `OK`.
    """

    state: str
    text: str


def findings() -> Iterator[Finding]:
    """What was found, one after the other; imports TensorFlow."""
    import tensorflow as tf

    build = tf.sysconfig.get_build_info()
    devices = tf.config.list_physical_devices("GPU")
    if not devices:
        if machine.has_gpu_driver():
            yield unseen(build)
        else:
            yield Finding(OK, "no GPU; TensorFlow computes on the processor")
        return
    sizes = machine.gpu_memory()
    details = [tf.config.experimental.get_device_details(device) for device in devices]
    for number, found in enumerate(details):
        memory = sizes[number] if len(sizes) == len(details) else None
        yield card(f"GPU:{number}", found, memory, build.get("cuda_compute_capabilities", ()))
    yield versions(build)
    yield sharing(machine.ask_driver("name", "memory.used", "compute_mode"))
    yield tensor_float_32([found.get("compute_capability", (0, 0)) for found in details])
    yield compilation("/device:GPU:0")


def unseen(build: Mapping[str, Any]) -> Finding:
    """Why TensorFlow sees no GPU where there is a driver.

    Args:
        build: what TensorFlow was built with.
    """
    hidden = os.environ.get(_VISIBLE)
    if hidden is not None and hidden.split(",")[0] in ("", "-1"):
        return Finding(OPTIONAL, f"{_VISIBLE}={hidden} hides the GPUs; to use them: unset it")
    if not build.get("is_cuda_build"):
        why = f"this is its build for processors; install the build with CUDA: {_INSTALL}"
    elif missing := missing_libraries():
        why = f"{', '.join(missing)} are missing: {_INSTALL}"
    elif is_old(machine.cuda_of_driver(), build):
        return versions(build)
    else:
        why = 'TF_CPP_MIN_LOG_LEVEL=0 python -c "import tensorflow as tf; '
        why += "tf.config.list_physical_devices('GPU')\" prints the reason"
    cards = [found["name"] for found in machine.ask_driver("name")]
    there = f"there is a GPU ({', '.join(cards)})" if cards else "there is a GPU"
    return Finding(WRONG, f"{there}, and TensorFlow does not see it; {why}")


def missing_libraries() -> list[str]:
    """The packages with CUDA's libraries, of TensorFlow's extra `and-cuda`, that are missing."""
    for name in ("tensorflow", "tensorflow-cpu"):
        try:
            required = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        of_cuda = [line for line in required if "and-cuda" in line]
        packages = [found[0] for line in of_cuda if (found := re.match(r"[\w-]+", line))]
        return [package for package in packages if stack.version(package) is None]
    return []


def card(
    name: str, details: Mapping[str, Any], memory: int | None, built_for: Sequence[str]
) -> Finding:
    """A GPU, and whether TensorFlow has machine code for it.

    Args:
        name: as in --devices.
        details: what TensorFlow says of it.
        memory: in bytes; None if that is unknown.
        built_for: names like "sm_80" (machine code) and "compute_90" (what the driver compiles).
    """
    capability = details.get("compute_capability", (0, 0))
    size = "" if memory is None else f", {memory / 2**30:.1f} GiB of memory"
    text = f"{name} is {details.get('device_name', 'a GPU')}{size}, compute capability "
    text += ".".join(map(str, capability))
    codes = filter(
        None, (re.fullmatch(r"(sm|compute)_(\d+)(\d)[a-z]?", code) for code in built_for)
    )
    known = [(code[1], (int(code[2]), int(code[3]))) for code in codes]
    machine_code = [found for kind, found in known if kind == "sm"]
    if not known or any(
        found[0] == capability[0] and found <= capability for found in machine_code
    ):
        return Finding(OK, text)
    if any(found <= capability for kind, found in known if kind == "compute"):
        reason = "which TensorFlow has no machine code for; the driver compiles it at the first use"
        return Finding(OPTIONAL, f"{text}, {reason}, which takes minutes once")
    lowest = ".".join(map(str, min(found for _, found in known)))
    return Finding(WRONG, f"{text}, and TensorFlow needs {lowest}; compute on --devices=CPU:0")


def is_old(driver: tuple[int, int] | None, build: Mapping[str, Any]) -> bool:
    """Whether NVIDIA's driver is for an earlier CUDA than TensorFlow was built with."""
    needed = str(build.get("cuda_version", "")).partition(".")[0]
    # Drivers run the later minor versions of their major version.
    return driver is not None and needed.isdecimal() and driver[0] < int(needed)


def versions(build: Mapping[str, Any]) -> Finding:
    """The versions of NVIDIA's driver, and of CUDA and cuDNN that TensorFlow was built with."""
    drivers = {found["driver_version"] for found in machine.ask_driver("driver_version")}
    cuda = machine.cuda_of_driver()
    text = f"NVIDIA's driver {', '.join(sorted(drivers)) or 'of unknown version'}"
    if cuda is not None:
        text += f" is for CUDA up to {cuda[0]}.{cuda[1]}"
    text += f"; TensorFlow was built with CUDA {build.get('cuda_version', 'of unknown version')}"
    text += f" and cuDNN {build.get('cudnn_version', 'of unknown version')}"
    if is_old(cuda, build):
        return Finding(WRONG, f"{text}; install a more recent driver")
    return Finding(OK, text)


def sharing(cards: Sequence[Mapping[str, str]]) -> Finding:
    """Whether several programs can compute on a GPU at the same time.

    Args:
        cards: `name`, `memory.used` and `compute_mode` of each, as nvidia-smi says them.
    """
    for found in cards:
        if found["compute_mode"] not in ("Default", "[N/A]", "[Not Supported]"):
            reason = f"{found['name']} is in compute mode {found['compute_mode']}"
            mend = "to let programs share it: sudo nvidia-smi -c DEFAULT"
            return Finding(OPTIONAL, f"{reason}, so one program at a time can use it; {mend}")
    if os.environ.get(_GROWTH, "true").lower() in ("false", "0"):
        mend = "unset it, or set --gpu_memory in each, to let programs share it"
        return Finding(OPTIONAL, f"{_GROWTH}: a program takes all memory of a GPU; {mend}")
    text = "programs can share a GPU: each takes memory as it needs it, at most --gpu_memory"
    used = [f"{found['memory.used']}" for found in cards if found["memory.used"][:1].isdigit()]
    return Finding(OK, f"{text}; in use now: {', '.join(used)}" if used else text)


def tensor_float_32(capabilities: Sequence[tuple[int, int]]) -> Finding:
    """How float32 is computed."""
    import tensorflow as tf

    if min(capabilities) < _AMPERE:
        text = "a GPU has a compute capability below 8.0, so neither --precision=tf32 nor bfloat16"
        return Finding(OPTIONAL, f"{text} is faster than float32")
    default = "on" if tf.config.experimental.tensor_float_32_execution_enabled() else "off"
    text = f"TF32 is {default} by TensorFlow's default; --precision=float32 computes without it"
    return Finding(OK, f"{text}, --precision=tf32 with it")


def compilation(device: str) -> Finding:
    """Whether XLA compiles the step of a small network.

    Args:
        device: the name of a logical device.
    """
    import tensorflow as tf

    from tff_pcdd import runtime

    runtime.create("inprocess").prepare()

    @tf.function(jit_compile=True)
    def step(x, w):
        with tf.GradientTape() as tape:
            tape.watch(w)
            loss = tf.reduce_sum(tf.nn.relu(tf.nn.conv2d(x, w, 1, "SAME")))
        return w - tape.gradient(loss, w)

    start = time.perf_counter()
    try:
        with tf.device(device):
            step(tf.ones([2, 8, 8, 3]), tf.ones([3, 3, 3, 4])).numpy()
    except (tf.errors.OpError, RuntimeError) as error:
        lines = [line.strip() for line in str(error).splitlines()]
        why = next(filter(None, lines), type(error).__name__)[:200]
        missing = missing_libraries()
        mend = (
            f"install {', '.join(missing)}: {_INSTALL}" if missing else "train with --compile=off"
        )
        return Finding(WRONG, f"XLA does not compile for GPUs: {why}; {mend}")
    seconds = time.perf_counter() - start
    return Finding(OK, f"XLA compiles for GPUs: --compile=client; a tiny step in {seconds:.1f} s")

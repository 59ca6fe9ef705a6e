"""The measurements of `python -m tasks.benchmark`, one module for each section of its report.

Importing this package does not import TensorFlow.
"""

import tff_pcdd  # noqa: F401  (before a module that runs as a program imports TensorFlow)

# Sections in the order in which they run; `run(plan)` of the module measures the section.
SECTIONS = {
    "runtimes": "benchmarks.runtimes",
    "local_step": "benchmarks.local_step",
    "precision": "benchmarks.precision",
    "peers": "benchmarks.peers",
    "blazefl": "benchmarks.blazefl",
    "actors": "benchmarks.actors",
    "studies": "benchmarks.studies",
    "methods": "benchmarks.methods",
    "startup": "benchmarks.startup",
    "memory": "benchmarks.memory",
    "population": "benchmarks.population",
    "large": "benchmarks.large",
    "soak": "benchmarks.soak",
    "serving": "benchmarks.serving",
}

# For a machine with a GPU: all of them are `--sections=gpu`. They are no part of the page.
GPU = "gpu"
GPU_SECTIONS = {
    "gpu_sight": "benchmarks.gpu.sight",
    "gpu_speed": "benchmarks.gpu.speed",
    "gpu_graphs": "benchmarks.gpu.graphs",
    "gpu_record": "benchmarks.gpu.record",
    "gpu_scale": "benchmarks.gpu.scale",
}

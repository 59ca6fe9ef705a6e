"""The measurements of `python -m tasks.benchmark`, one module for each section of its report.

Importing this package does not import TensorFlow.
"""

# Sections in the order in which they run; `run(plan)` of the module measures the section.
SECTIONS = {
    "runtimes": "tff_pcdd.benchmarks.runtimes",
    "local_step": "tff_pcdd.benchmarks.local_step",
    "precision": "tff_pcdd.benchmarks.precision",
    "peers": "tff_pcdd.benchmarks.peers",
    "blazefl": "tff_pcdd.benchmarks.blazefl",
    "actors": "tff_pcdd.benchmarks.actors",
    "studies": "tff_pcdd.benchmarks.studies",
    "methods": "tff_pcdd.benchmarks.methods",
    "startup": "tff_pcdd.benchmarks.startup",
    "memory": "tff_pcdd.benchmarks.memory",
    "population": "tff_pcdd.benchmarks.population",
    "large": "tff_pcdd.benchmarks.large",
    "soak": "tff_pcdd.benchmarks.soak",
    "serving": "tff_pcdd.benchmarks.serving",
}

"""What `python -m tasks.benchmark` measures, a module for each section of its report.

Importing this package imports no TensorFlow.
"""

# Sections by name, in the order in which they run, and the modules whose `run(plan)` measures them.
SECTIONS = {
    "runtimes": "tff_pcdd.benchmarks.runtimes",
    "methods": "tff_pcdd.benchmarks.methods",
    "startup": "tff_pcdd.benchmarks.startup",
    "memory": "tff_pcdd.benchmarks.memory",
    "population": "tff_pcdd.benchmarks.population",
    "serving": "tff_pcdd.benchmarks.serving",
}

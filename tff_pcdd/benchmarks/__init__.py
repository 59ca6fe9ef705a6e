"""What `python -m tasks.benchmark` measures, a module for each section of its report.

Importing this package imports no TensorFlow.
"""

# Sections by name, in the order in which they run, and the modules whose `run(plan)` measures them.
SECTIONS = {
    "runtimes": "benchmarks.runtimes",
    "methods": "benchmarks.methods",
    "startup": "benchmarks.startup",
    "memory": "benchmarks.memory",
    "population": "benchmarks.population",
    "serving": "benchmarks.serving",
}

"""The steps of `tasks.benchmark --sections=gpu`: what is measured on a machine with a GPU.

Each step is a section. It measures in child processes, stops after `--minutes`, and writes what it
has measured to a file in the output directory, from which the same command continues. Where there
is no GPU, `--quick` tries the programs on the processor.
"""

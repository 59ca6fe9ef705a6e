"""Injected faults: what the programs do when files, data, disks, signals and clients are bad.

    python -m tests.faults                        all cases, about 20 minutes (make faults)
    python -m tests.faults --only=damaged         those of one module

A module of this package that defines `cases` generates cases of one or several kinds. The tests run
a sample of each kind. docs/trust.md states what is promised and shows the figures of the last full
run.
"""

"""Findings: what a reader should know before believing a run's numbers, and what to do next.

Each rule reads what a run has measured, and yields a sentence with a flag to change. The rules are
declared here, once: those of runs in `runs`, `chance` and `clients`, those of grids in `grids`.
Their thresholds are in `thresholds`, and `advice` gives one advice for all findings of a run. A run
writes its findings into summary.json, programs print them, and pages show them; pages compute them
again, so runs of earlier versions have them too. Comparisons collect the findings of their runs
(`tff_pcdd.results.comparison_findings`).

    finding = next(of_run(settings, summary, history, evidence))
    print(finding.line)
"""

from tff_pcdd.findings.advice import can_retrain
from tff_pcdd.findings.chance import learned, limit_of_chance
from tff_pcdd.findings.clients import counts, label, listed_losses, loses
from tff_pcdd.findings.evidence import Evidence
from tff_pcdd.findings.finding import (
    CONTINUES,
    KEY,
    THEN,
    Change,
    Finding,
    advised_once,
    agreeing,
    are_recorded,
    printed,
    recorded,
    with_times,
)
from tff_pcdd.findings.grids import (
    merged,
    more_seeds,
    of_choice,
    of_grid,
    of_noise,
    read_point,
    without_effect,
)
from tff_pcdd.findings.runs import of_run, re_trained_method
from tff_pcdd.findings.thresholds import FEW_SEEDS, FLAT, LEAST_SAMPLES, SHARE_ADVISED

__all__ = [
    "CONTINUES",
    "FEW_SEEDS",
    "FLAT",
    "KEY",
    "LEAST_SAMPLES",
    "SHARE_ADVISED",
    "THEN",
    "Change",
    "Evidence",
    "Finding",
    "advised_once",
    "agreeing",
    "are_recorded",
    "can_retrain",
    "counts",
    "label",
    "learned",
    "limit_of_chance",
    "listed_losses",
    "loses",
    "merged",
    "more_seeds",
    "of_choice",
    "of_grid",
    "of_noise",
    "of_run",
    "printed",
    "re_trained_method",
    "read_point",
    "recorded",
    "with_times",
    "without_effect",
]

"""Reports: one self-contained HTML page about a run or a comparison.

from tff_pcdd.report import write_report

write_report(run_dir="runs/mine")
"""

from tff_pcdd.report.writing import Report, write_automatically, write_report

__all__ = ["Report", "write_automatically", "write_report"]

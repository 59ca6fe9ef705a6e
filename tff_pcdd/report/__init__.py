"""Reports: one self-contained HTML page about a run or a comparison, and one about all of them.

from tff_pcdd.report import write_index, write_report

write_report(run_dir="runs/mine")
write_index("runs")
"""

from tff_pcdd.report.writing import (
    Index,
    LiveReport,
    Report,
    write_automatically,
    write_index,
    write_report,
)

__all__ = ["Index", "LiveReport", "Report", "write_automatically", "write_index", "write_report"]

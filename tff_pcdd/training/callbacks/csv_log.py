"""The file metrics.csv: a row for each evaluated round."""

from __future__ import annotations

from tff_pcdd import files
from tff_pcdd.training import history
from tff_pcdd.training.callbacks import Callback
from tff_pcdd.training.results import METRICS


class CsvLog(Callback):
    """Appends each row of the history to metrics.csv as it is measured.

    A row is on the disk before the checkpoint that follows it.
    """

    def on_start(self, run):
        # Drops rows of rounds after the checkpoint, and an incomplete row: both are computed again.
        text = history.csv_text(run.history.columns, run.history)
        files.write_text(run.directory / METRICS, text)

    def on_round(self, run, row):
        if row is not None:
            text = history.csv_text(run.history.columns, [row], header=False)
            files.append_text(run.directory / METRICS, text)

"""One progress display for runs that are computed at the same time."""

from __future__ import annotations

import io
import sys

import tqdm

from tff_pcdd import stages
from tff_pcdd.training import callbacks

_ALL_RUNS = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}]"


class _Nowhere(io.TextIOBase):
    """Takes bars that nobody sees."""

    def write(self, text: str) -> int:
        return len(text)


class RunBars:
    """Shows a bar for each run that is being computed, and below them one for all runs.

    The bar of a run that ends moves above the others and stays. In a log file, only these are
    written.

    Args:
        runs: the number of runs.
        finished: how many of them have finished already.
        places: the most runs that are computed at the same time.
        shown: whether anything is shown.
    """

    def __init__(self, runs: int, finished: int, places: int, *, shown: bool = True):
        self._shown = shown
        self._file = sys.stderr if shown and sys.stderr.isatty() else _Nowhere()
        self._bars: dict[int, tqdm.tqdm] = {}
        self._places: dict[int, int] = {}
        # What stands behind the bars, unless it is a stage.
        self._texts: dict[int, str] = {}
        self._all_places = range(places)
        self._runs, self._finished = runs, finished
        stages.leave()
        self._all = self._bar(runs, self._description(), _ALL_RUNS, places, finished)

    def _bar(self, total: int, label: str, form: str, place: int, initial: int = 0) -> tqdm.tqdm:
        return tqdm.tqdm(
            total=total,
            initial=initial,
            desc=label,
            bar_format=form,
            position=place,
            leave=False,
            mininterval=0.5,
            ascii=not (sys.stderr.encoding or "").lower().startswith("utf"),
            file=self._file,
        )

    def _description(self) -> str:
        return f"{self._finished} of {self._runs} runs"

    def add(self, run: int, label: str, rounds: int) -> None:
        """Adds the bar of a run.

        Args:
            run: the number of the run.
            label: what stands in front of the bar.
            rounds: the planned number of rounds.
        """
        place = min(set(self._all_places).difference(self._places.values()))
        self._places[run] = place
        self._texts[run] = ""
        self._bars[run] = self._bar(rounds, label, callbacks.FORMAT, place)

    def stage(self, run: int, text: str) -> None:
        """Shows what a run does besides computing rounds; an empty text when that ends."""
        parts = [self._texts[run], f"{text} …" if text else ""]
        self._bars[run].set_postfix_str(", ".join(filter(None, parts)))

    def begin(self, run: int, rounds: int, last: int, text: str) -> None:
        """Starts the clock of a run.

        Args:
            run: the number of the run.
            rounds: its rounds so far, of earlier processes.
            last: its last round.
            text: what stands behind the bar.
        """
        bar = self._bars[run]
        bar.reset(last)
        bar.initial = bar.n = bar.last_print_n = rounds
        self.round(run, rounds, last, text)

    def round(self, run: int, rounds: int, last: int, text: str) -> None:
        """Shows the rounds of a run so far; takes the arguments of `begin`."""
        bar = self._bars[run]
        bar.total = last
        self._texts[run] = text
        bar.set_postfix_str(text, refresh=False)
        bar.update(rounds - bar.n)
        self._update_all()

    def end(self, run: int) -> None:
        """Moves the bar of a run above the others."""
        bar = self._bars[run]
        bar.set_postfix_str(self._texts[run], refresh=False)
        line = str(bar)
        # A signal may end the program here. A bar that nobody closes would be drawn at its exit.
        bar.close()
        del self._bars[run], self._places[run], self._texts[run]
        if self._shown:
            tqdm.tqdm.write(line, file=sys.stderr)

    def count(self) -> None:
        """Counts a run as finished."""
        self._finished += 1
        self._update_all()
        self._all.set_description_str(self._description())

    def _update_all(self) -> None:
        begun = sum(min(1.0, bar.n / bar.total) for bar in self._bars.values() if bar.total)
        self._all.update(self._finished + begun - self._all.n)

    def close(self) -> None:
        """Removes all bars."""
        for bar in (*self._bars.values(), self._all):
            bar.close()

"""Pictures at the end of a run."""

from __future__ import annotations

from etils import epy

from tff_pcdd import stages
from tff_pcdd.training.callbacks import Callback

# Matplotlib is not needed before the last round.
with epy.lazy_imports():
    from tff_pcdd.diagnostics import plots as diagnostic_plots
    from tff_pcdd.training import plots

FOLDER = "plots"


class Pictures(Callback):
    """Draws the accuracies, the clients' classes and the selected diagnostics of a finished run."""

    def on_end(self, run):
        if not run.finished:
            return
        stages.enter("drawing pictures")
        folder, config, federation = run.directory / FOLDER, run.config, run.simulation.federation
        title = f"{config.algorithm} on {config.describe()}"
        if run.simulation.nonfinite.diverged:
            title += " (diverged)"
        elif excluded := run.simulation.totals["excluded_clients"]:
            title += f"\nclients excluded because of NaN or infinities: {excluded} times"
        figure, _ = plots.accuracy_curves(
            run.history, title, has_global_model=config.method.has_global_model
        )
        plots.save(figure, folder / "accuracy.png")
        figure, _ = plots.class_counts(
            federation.class_counts(), federation.class_names, config.data.describe()
        )
        plots.save(figure, folder / "clients.png")
        if run.diagnostics is not None:
            figures = diagnostic_plots.figures(
                run.diagnostics, run.history, run.simulation.state, federation.class_names, title
            )
            for name, figure in figures.items():
                plots.save(figure, folder / f"diag_{name}.png")

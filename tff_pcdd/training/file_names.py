"""The names of the files of runs and studies."""

CONFIG, METRICS, SUMMARY = "config.json", "metrics.csv", "summary.json"
CHECKPOINTS = "checkpoints"
# A finished run's predictions: accuracies by client, confusion matrices and, on request, the
# predictions for each sample.
CLIENTS, CLIENTS_TABLE, CONFUSION = "clients.csv", "clients.md", "confusion.npz"
PREDICTIONS, CALIBRATION = "predictions.csv", "calibration.json"
EVALUATION, REPORT, CLIENT_STATES = "evaluation.json", "report.html", "client_states"
# The identity of the run's record at Weights & Biases.
WANDB_RECORD = "wandb_record.txt"
# The results of several runs, by which the directories of comparisons and of sweeps are recognized.
COMPARISON_TABLE, SWEEP_TABLE = "comparison.csv", "sweep.csv"
# The folder of a sweep with the runs that choose: METHOD/SETTINGS/seed_N.
SWEEP_RUNS = "tuning"
# Where the tracebacks of failed runs of a comparison or a sweep are written.
FAILURES = "failures.txt"


def answer_files(*, predictions: bool) -> tuple[str, ...]:
    """The files of a finished run that are computed from its models' answers.

    With `predictions`, those that are written on request are among them.
    """
    on_request = (PREDICTIONS, CALIBRATION) if predictions else ()
    return (CLIENTS, CLIENTS_TABLE, CONFUSION, *on_request)

"""What the software of section `peers` can do besides training."""

from __future__ import annotations

COLUMNS = (
    "software",
    "states of clients",
    "evaluates personal models",
    "resumes a run",
    "partitions with disjoint classes",
    "exports models",
)
ROWS = (
    (
        "tff_pcdd",
        "in memory or on disk",
        "yes",
        "yes, with the same results",
        "yes",
        "SavedModel, TensorFlow Lite, .keras",
    ),
    (
        "PyTorch loop (PFLlib)",
        "in memory: one object and one network for each client",
        "yes",
        "no",
        "yes",
        "torch.save",
    ),
    (
        "Flower",
        "in memory, as records",
        "written by the user",
        "written by the user",
        "in the package flwr-datasets",
        "written by the user",
    ),
    (
        "pfl-research",
        "in memory or on disk",
        "yes, in its personalized algorithms",
        "yes",
        "no",
        "torch.save",
    ),
    ("FedJAX", "written by the user, in memory", "in its APFL", "yes", "no", "no"),
)

"""Trained models on their way out: SavedModels for serving, with a model card each.

    from tff_pcdd.export import ExportOptions, export_run
    export_run("runs/fedgela", "exported", ExportOptions(clients="all"))

What a model computes is the method's business (`Method.global_logits`, `personalize`,
`personal_logits`); nothing here knows any method.
"""

from etils import epy

# Options are checked before TensorFlow is needed; the rest is imported when it is first used.
with epy.lazy_api_imports(globals()):
    from tff_pcdd.export.exporter import export_run
    from tff_pcdd.export.options import ExportOptions
    from tff_pcdd.export.trained import PersonalModels, TrainedModel, global_model

__all__ = [
    "ExportOptions",
    "PersonalModels",
    "TrainedModel",
    "export_run",
    "global_model",
]

"""Export of trained models for use elsewhere; every model comes with a model card.

    from tff_pcdd.export import ExportOptions, export_run
    for exported in export_run("runs/fedgela", "exported", ExportOptions(clients="all")):
        print(exported.folder, exported.accuracy)

The method determines what a model computes (`Method.global_logits`, `personalize`,
`personal_logits`); this package does not depend on any specific method.
"""

from etils import epy

# Imported on first use, because options are checked before TensorFlow is imported.
with epy.lazy_api_imports(globals()):
    from tff_pcdd.export.exporter import Exported, export_run, iter_export
    from tff_pcdd.export.options import ExportOptions
    from tff_pcdd.export.trained import PersonalModels, TrainedModel, global_model

__all__ = [
    "ExportOptions",
    "Exported",
    "PersonalModels",
    "TrainedModel",
    "export_run",
    "global_model",
    "iter_export",
]

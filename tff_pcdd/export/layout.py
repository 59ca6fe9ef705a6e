"""The directory of an export, in the layout that TensorFlow Serving expects.

models.config                 lists every model, with its path in the container
global/<version>/             a SavedModel
personal/<client id>/<version>/
"""

from __future__ import annotations

import contextlib
import os
import shutil
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

from tff_pcdd import files
from tff_pcdd.errors import SettingError

MODELS_CONFIG = "models.config"
GLOBAL, _PERSONAL = "global", "personal"

# Mount point of the directory in TensorFlow Serving's container.
SERVING_ROOT = "/models"


def personal_folder(client_id: str) -> str:
    """The folder of a client's models; characters with a special meaning in paths are quoted."""
    quoted = urllib.parse.quote(client_id, safe="")
    return f"{_PERSONAL}/{quoted.replace('.', '%2E') if not quoted.strip('.') else quoted}"


def model_name(folder: str) -> str:
    """The name of the model in a folder, as used in the server's URLs."""
    return folder.replace("/", "-")


class ExportDirectory:
    """Writes versions of models atomically.

    Args:
        root: the directory; created when the first model is written.
        version: version number of the models that are written.
        overwrite: whether to replace existing models of this version.

    Raises:
        SettingError: the directory cannot be used for an export.
    """

    def __init__(self, root: str | os.PathLike, version: int, overwrite: bool = False):
        self._root = Path(root)
        self._version = str(version)
        self._overwrite = overwrite
        known = (MODELS_CONFIG, GLOBAL, _PERSONAL)
        files.check_output(self._root, "export", lambda path: path.name in known, "export_dir")

    def check(self, folders: list[str]) -> None:
        """Checks that no version would be replaced, unless `overwrite` is true.

        Raises:
            SettingError: one of the folders already contains this version.
        """
        taken = [folder for folder in folders if (self._root / folder / self._version).exists()]
        if taken and not self._overwrite:
            raise SettingError(
                "export_dir",
                str(self._root),
                f"already contains {taken[0]}/{self._version}; choose another model_version or set "
                "overwrite",
            )

    @contextlib.contextmanager
    def version(self, folder: str) -> Iterator[Path]:
        """Yields a temporary directory, which becomes the version if the block succeeds."""
        target = self._root / folder / self._version
        # Servers treat folders whose names are numbers as versions, and ignore hidden ones.
        for leftover in target.parent.glob(f".{self._version}.*.tmp"):
            shutil.rmtree(leftover)
        filling = target.with_name(f".{self._version}.{os.getpid()}.tmp")
        filling.mkdir(parents=True)
        try:
            yield filling
            if target.exists():
                os.replace(target, target.with_name(f".{self._version}.old.tmp"))
            os.replace(filling, target)
        finally:
            for leftover in target.parent.glob(f".{self._version}.*.tmp"):
                shutil.rmtree(leftover)

    def write_models_config(self) -> None:
        """Writes the list of all SavedModels in the directory, including earlier exports."""
        found = {path.parent.parent for path in self._root.glob("**/[0-9]*/saved_model.pb")}
        folders = sorted(path.relative_to(self._root).as_posix() for path in found)
        files.write_text(self._root / MODELS_CONFIG, _models_config(folders))


def _models_config(folders: list[str]) -> str:
    """A `ModelServerConfig` of TensorFlow Serving, in protobuf's text format."""
    entries = [
        f'  config {{\n    name: "{model_name(folder)}"\n'
        f'    base_path: "{SERVING_ROOT}/{folder}"\n    model_platform: "tensorflow"\n  }}\n'
        for folder in folders
    ]
    return f"model_config_list {{\n{''.join(entries)}}}\n"

"""The directory of an export, as TensorFlow Serving expects it.

models.config                 lists every model, with its place in a container
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
from tff_pcdd.options import OptionError

MODELS_CONFIG = "models.config"
GLOBAL, _PERSONAL = "global", "personal"

# Where the directory is mounted in TensorFlow Serving's container.
SERVING_ROOT = "/models"


def personal_folder(client_id: str) -> str:
    """The folder of a client's models; characters that have a meaning in paths are quoted."""
    quoted = urllib.parse.quote(client_id, safe="")
    return f"{_PERSONAL}/{quoted.replace('.', '%2E') if not quoted.strip('.') else quoted}"


def model_name(folder: str) -> str:
    """The name under which a server knows the model in a folder, as it stands in an address."""
    return folder.replace("/", "-")


class ExportDirectory:
    """Takes versions of models; a reader never sees half of one.

    Args:
        root: the directory; made when the first model is written.
        version: number of the versions that are written.
        overwrite: whether versions of that number are replaced.

    Raises:
        OptionError: the directory cannot take an export.
    """

    def __init__(self, root: str | os.PathLike, version: int, overwrite: bool = False):
        self._root = Path(root)
        self._version = str(version)
        self._overwrite = overwrite
        known = (MODELS_CONFIG, GLOBAL, _PERSONAL)
        files.check_output(self._root, "export", lambda path: path.name in known, "export_dir")

    def check(self, folders: list[str]) -> None:
        """Refuses to replace versions, unless that is wanted.

        Raises:
            OptionError: one of the folders has this version.
        """
        taken = [folder for folder in folders if (self._root / folder / self._version).exists()]
        if taken and not self._overwrite:
            raise OptionError(
                f"--export_dir={self._root}: holds {taken[0]}/{self._version} already; choose "
                "another --model_version, or --overwrite it"
            )

    @contextlib.contextmanager
    def version(self, folder: str) -> Iterator[Path]:
        """A directory to be filled, which becomes the version of a folder when all is well."""
        target = self._root / folder / self._version
        # Servers take names that are numbers for versions, and leave hidden ones alone.
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
        """Lists all SavedModels of the directory, those of earlier exports too."""
        found = {path.parent.parent for path in self._root.glob("**/[0-9]*/saved_model.pb")}
        folders = sorted(path.relative_to(self._root).as_posix() for path in found)
        files.write_text(self._root / MODELS_CONFIG, _models_config(folders))


def _models_config(folders: list[str]) -> str:
    """TensorFlow Serving's ModelServerConfig as text."""
    entries = [
        f'  config {{\n    name: "{model_name(folder)}"\n'
        f'    base_path: "{SERVING_ROOT}/{folder}"\n    model_platform: "tensorflow"\n  }}\n'
        for folder in folders
    ]
    return f"model_config_list {{\n{''.join(entries)}}}\n"

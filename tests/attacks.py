"""What an attacker may put into a directory, for tests and injected faults."""

import pathlib
import subprocess
import sys

# In features.json of a prepared data set: the module of feature classes, an image, its label.
FEATURES = "tensorflow_datasets.core.features"
IMAGE = {
    "pythonClassName": f"{FEATURES}.image_feature.Image",
    "image": {"shape": {"dimensions": ["28", "28", "1"]}, "dtype": "uint8"},
}
LABEL = {
    "pythonClassName": f"{FEATURES}.class_label_feature.ClassLabel",
    "classLabel": {"numClasses": "10"},
}

# The environment's packages that the programs import, or try to.
PACKAGES = (
    *("absl", "cloudpickle", "dp_accounting", "etils", "google", "h5py", "jax", "keras"),
    *("matplotlib", "numpy", "pandas", "PIL", "ray", "scipy", "sklearn"),
    *("tensorboard", "tensorflow", "threadpoolctl"),
    *("tensorflow_datasets", "tensorflow_federated", "tqdm", "tree", "typing_extensions"),
    *("IPython", "jax_plugins", "sitecustomize", "usercustomize", "tensorflow_io", "yaml"),
)


def clone_beside_hostile_modules(directory):
    """A working directory with the clone and with modules of nearly every name.

    Returns:
        The directory, and the path of a file that exists after one of the modules has been run.
    """
    root, trace, folder = (
        pathlib.Path(__file__).parents[1],
        directory / "trace",
        directory / "clone",
    )
    folder.mkdir()
    for name in ("tasks", "tff_pcdd", "benchmarks"):
        (folder / name).symlink_to(root / name)
    attack = f"import os\nos.open({str(trace)!r}, os.O_CREAT)\nos._exit(99)\n"
    # `python -m` itself needs some before it looks for the program, from where it finds them.
    code = "import runpy, sys; print(*sys.modules)"
    needed = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    for name in {*sys.stdlib_module_names, *PACKAGES}.difference(needed):
        (folder / f"{name}.py").write_text(attack)
    return folder, trace

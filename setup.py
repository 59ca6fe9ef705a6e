"""Installs tff_pcdd; see the README for why `requirements.lock` goes with it."""

import pathlib

import setuptools

HERE = pathlib.Path(__file__).parent

setuptools.setup(
    name="tff_pcdd",
    version="0.1.0",
    description=(
        "Federated learning when clients hold only some of the classes: FedGELA, FedMR, FedLoGe "
        "and their rivals on TensorFlow Federated"
    ),
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    python_requires="==3.11.*",
    packages=setuptools.find_packages(include=["tff_pcdd", "tff_pcdd.*", "tasks", "tasks.*"]),
    # Pins, where one is needed, stand in requirements.lock; TFF's own metadata cannot be resolved.
    # KServe, which serves exported models, is not among these: see serving/requirements.lock.
    install_requires=[
        "absl-py",  # command-line flags
        "dp-accounting",  # ε of runs with differential privacy; TFF brings it
        "etils",  # imports of TensorFlow that wait until it is needed
        "matplotlib",  # pictures of runs
        "numpy",
        "scikit-learn",  # the digits, real images inside a package
        "tensorflow==2.14.*",
        "tensorflow-datasets",  # CIFAR, Fashion-MNIST, SVHN
        "tensorflow-federated==0.87.0",
        "threadpoolctl",  # t-SNE with one thread; scikit-learn brings it
        "tqdm",  # progress bars
    ],
    extras_require={
        # The kernel of notebooks, and what executes them for the tests and for `make notebooks`.
        "notebooks": ["ipykernel", "nbclient", "nbformat"],
        "dev": [
            "pytest",
            "pytest-cov",  # the coverage that `make test` reports
            "pytest-xdist",  # tests on two cores at a time
            "ruff",  # linter and formatter
        ],
        # TensorFlow 2.14's own `and-cuda` extra asks for a TensorRT that has no wheel for 3.11.
        "gpu": [
            "nvidia-cublas-cu11==11.11.3.6",
            "nvidia-cuda-cupti-cu11==11.8.87",
            "nvidia-cuda-nvcc-cu11==11.8.89",
            "nvidia-cuda-runtime-cu11==11.8.89",
            "nvidia-cudnn-cu11==8.7.0.84",
            "nvidia-cufft-cu11==10.9.0.58",
            "nvidia-curand-cu11==10.3.0.86",
            "nvidia-cusolver-cu11==11.4.1.48",
            "nvidia-cusparse-cu11==11.7.5.86",
            "nvidia-nccl-cu11==2.16.5",
        ],
    },
    entry_points={
        "console_scripts": [
            "tff-pcdd-train=tasks.train:run",
            "tff-pcdd-compare=tasks.compare:run",
            "tff-pcdd-evaluate=tasks.evaluate:run",
            "tff-pcdd-export=tasks.export:run",
            "tff-pcdd-partition=tasks.partition:run",
            "tff-pcdd-sweep=tasks.sweep:run",
            "tff-pcdd-worker=tasks.worker:run",
        ]
    },
)

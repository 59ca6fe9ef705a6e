"""FedLoGe's frame and its features: table 6 and figures 1, 6, 7; see publication.measured."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from publication.measured import Rows, grouped
from tff_pcdd import files
from tff_pcdd import tables as markdown
from tff_pcdd.diagnostics import geometry
from tff_pcdd.training import ExperimentConfig, RunOptions, colors, restore_run, run_experiment

PUBLISHED = Path(__file__).parents[1] / "flags" / "published" / "fedloge_table6.csv"

# The settings of table 6, with its names of the statistics.
SPARSITIES = 0.6, 0.4
NORMS = 0.5, 1.0, 1.5
_STATISTICS = {
    "mean of norm": "{:.4f}",
    "variance of norm": "{:.1e}",
    "mean of angle": "{:.2f}",
    "variance of angle": "{:#.3g}",
}


class Frames(NamedTuple):
    """Frames of one size.

    Attributes:
        classes: C.
        width: d, number of features.
        steps: steps of the optimization.
        seeds: a start for each of them and each of `SPARSITIES`.
        optimized: the settings of which frames are optimized from it, as sparsity and norm.
        scaled: those of which frames are optimized from a start with columns of length γ, too.
    """

    classes: int
    width: int
    steps: int
    seeds: tuple[int, ...]
    optimized: tuple[tuple[float, float], ...]
    scaled: tuple[tuple[float, float], ...] = ()


FRAMES = {
    # Table 6's number of classes with the features of ResNet50, for which a step takes 0.1 s.
    "ImageNet": Frames(1000, 2048, 800, (0,), ((0.6, 0.5),)),
    # With those of ResNet34.
    "CIFAR-100": Frames(
        100, 512, 10000, (0, 1), tuple(itertools.product(SPARSITIES, NORMS)), ((0.6, 1.5),)
    ),
    # Those of the runs below, with the package's γ.
    "Fashion-MNIST": Frames(10, 84, 10000, (0, 1, 2), ((0.6, 2.0),), ((0.6, 2.0),)),
}
# Of figure 7.
DRAWN = "CIFAR-100"

SEEDS = 0, 1, 2
RUNS = {"dense ETF": 0.0, "SSE-C, β = 0.6": 0.6}
# Those of flags/fedloge_fashion_lt.flags, with fewer rounds.
SETTINGS: dict[str, Any] = {
    "algorithm": "fedloge",
    "fedloge_norm": 2.0,
    "fedloge_global_head": "frame",
    "dataset": "fashion_mnist",
    "max_train_samples": 10000,
    "imbalance_factor": 100,
    "partition": "dirichlet",
    "num_clients": 20,
    "concentration": 0.5,
    "rounds": 20,
    "local_epochs": 5,
    "batch_size": 16,
    "client_learning_rate": 0.03,
    "client_momentum": 0.5,
    "client_weight_decay": 0,
    "client_clip_norm": 0,
    "eval_every": 20,
    "personal_eval_every": 0,
}

# Measures of class means, with their digits; see `measure`.
_MEASURES = {
    "GA": 1,
    "effective entries": 1,
    "below 1 %": 1,
    "noise, large": 2,
    "noise, others": 2,
    "common": 2,
    "within / between": 2,
}


class Features(NamedTuple):
    """Features of the test samples by a trained network.

    Attributes:
        features: [n, d].
        labels: classes, int [n].
        class_names: [C].
    """

    features: np.ndarray
    labels: np.ndarray
    class_names: np.ndarray


def frame_statistics(frame: np.ndarray) -> dict[str, float]:
    """Table 6's statistics of a frame [d, C]: of its columns' lengths, and of all pairs' angles.

    Angles are in degrees, and variances are those of the population.
    """
    lengths = geometry.norms(frame.T)
    angles = geometry.pairs(geometry.angles(frame.T))
    values = lengths.mean(), lengths.var(), angles.mean(), angles.var()
    return dict(zip(_STATISTICS, map(float, values), strict=True))


def sorted_means(features: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each class's mean feature, with its entries in descending order, and their variances.

    Args:
        features: [n, d].
        labels: classes, int [n], all of which have samples.

    Returns:
        The means and the biased variances within the class at the same places, [C, d] each, in
        units of the class's largest mean and of its square.
    """
    classes = int(labels.max()) + 1
    means = geometry.class_means(features, labels, classes)
    variances = geometry.class_means((features - means[labels]) ** 2, labels, classes)
    order = np.argsort(-means, axis=1, kind="stable")
    means, variances = (np.take_along_axis(each, order, axis=1) for each in (means, variances))
    largest = means[:, :1]
    return means / largest, variances / largest**2


def measure(features: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """What figure 1 shows, in numbers.

    Returns:
        effective entries: (Σ m)² / Σ m² of a class mean m, which is d if its entries are equal, and
            1 if all but one are 0; mean over classes.
        below 1 %: number of entries of a class mean below a hundredth of the largest; likewise.
        noise, large and others: Σ variances / Σ means² over the largest entries, which make up half
            of the sum of a class mean's entries, and over the others.
        common: squared length of the mean of the class means, relative to that of a class mean.
        within / between: variance within a class relative to that of the class means.
    """
    means, variances = sorted_means(features, labels)
    totals = means.sum(axis=1, keepdims=True)
    large = np.cumsum(means, axis=1) - means < totals / 2
    points = geometry.class_means(features, labels, len(means))
    within = np.mean(np.sum((features - points[labels]) ** 2, axis=1))
    between = np.mean(np.sum(geometry.centred(points) ** 2, axis=1))
    common = np.sum(points.mean(axis=0) ** 2) / np.mean(np.sum(points**2, axis=1))
    values = {
        "effective entries": (totals[:, 0] ** 2 / (means**2).sum(axis=1)).mean(),
        "below 1 %": (means < 0.01).sum(axis=1).mean(),
        "noise, large": variances[large].sum() / (means[large] ** 2).sum(),
        "noise, others": variances[~large].sum() / (means[~large] ** 2).sum(),
        "common": common,
        "within / between": within / between,
    }
    return {name: float(value) for name, value in values.items()}


def principal_plane(means: np.ndarray) -> tuple[np.ndarray, float]:
    """The plane in which the points [C, d] differ most.

    Returns:
        Two orthonormal directions, [2, d], and the share of the points' variance that they show.
    """
    _, singular, directions = np.linalg.svd(geometry.centred(means), full_matrices=False)
    return directions[:2], float((singular[:2] ** 2).sum() / (singular**2).sum())


def compute(directory: Path, data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The statistics of frames, and the measures of runs in folders of `directory`."""
    for frames in FRAMES.values():
        for seed, sparsity in itertools.product(frames.seeds, SPARSITIES):
            optimized = [norm for of, norm in frames.optimized if of == sparsity]
            for norm in (None, *optimized):
                frame = _frame(directory, frames, sparsity, norm, seed)
                steps = f"{frames.steps:,}" if norm else "0"
                yield _row(frames, seed, sparsity, norm, steps, frame)
        for seed, (sparsity, norm) in itertools.product(frames.seeds, frames.scaled):
            start = _frame(directory, frames, sparsity, None, seed)
            steps = f"{frames.steps:,}, start scaled to γ"
            frame = _from_scaled(start, norm, frames.steps)
            yield _row(frames, seed, sparsity, norm, steps, frame)
    for seed, name in itertools.product(SEEDS, RUNS):
        accuracy, found = _trained(directory, data, name, seed)
        values = {"GA": accuracy, **measure(found.features, found.labels)}
        yield {"part": "figure1", "seed": seed, "frame": name} | _digits(values)


def _row(
    frames: Frames, seed: int, sparsity: float, norm: float | None, steps: str, frame: np.ndarray
) -> dict[str, Any]:
    own = {"part": "table6", "classes": frames.classes, "seed": seed, "β": sparsity}
    return own | {"γ": norm or "", "steps": steps} | _digits(frame_statistics(frame))


def _digits(values: Mapping[str, float]) -> dict[str, str]:
    return {name: f"{value:.6g}" for name, value in values.items()}


def _frame(
    directory: Path, frames: Frames, sparsity: float, norm: float | None, seed: int
) -> np.ndarray:
    """A sparse frame [d, C]; without a norm, its start: an ETF with zeros."""
    from tff_pcdd import layers

    return layers.sparse_etf(
        frames.width,
        frames.classes,
        sparsity=sparsity,
        norm=norm or math.sqrt(1 - sparsity),  # That of the start's columns, on average.
        steps=frames.steps if norm else 0,
        seed=seed,
        cache_dir=directory / "frames",
    )


def _from_scaled(start: np.ndarray, norm: float, steps: int) -> np.ndarray:
    """The frame that is optimized from a start whose columns already have length γ."""
    from tff_pcdd import layers

    scaled = (norm * start / geometry.norms(start.T)).astype(np.float32)
    return layers.optimize_sparse_etf(scaled, scaled != 0, norm=norm, steps=steps)


def _trained(
    directory: Path, data: Mapping[str, Any], name: str, seed: int
) -> tuple[float, Features]:
    """GA in percent and features of a run, which is computed or continued."""
    own = {**SETTINGS, **data, "fedloge_sparsity": RUNS[name], "seed": seed}
    config = ExperimentConfig.from_settings(**own)
    folder = directory / f"sparsity_{RUNS[name]:g}_{seed}"
    options = RunOptions(tensorboard=False, progress=False)
    accuracy = run_experiment(config, folder, options)["ga_final"]
    path = directory / "features" / f"{folder.name}.npz"
    if not path.is_file():
        options = RunOptions(diagnostics="features", tensorboard=False, progress=False)
        run = restore_run(config, folder, options)
        with run.simulation as simulation:
            assert run.diagnostics is not None
            view = run.diagnostics.look(simulation.state)
            found = Features(
                view.features, view.labels, np.array(simulation.federation.class_names)
            )
        files.make_directory(path.parent)
        files.write_atomically(path, lambda file: np.savez(file, **found._asdict()))
    with np.load(path) as arrays:
        return accuracy, Features(**arrays)


def tables(rows: Rows) -> dict[str, str]:
    """Table 6, and the measures of figure 1."""
    runs = [row for row in rows if row["part"] == "figure1"]
    frames = [row for row in rows if row["part"] == "table6"]
    return {"table6": _table6(frames), "figure1": grouped(runs, ["frame"], _MEASURES)}


def _table6(rows: Rows) -> str:
    """Published statistics beside those of the rows, which are means over seeds."""
    lines = [["β", "γ", "classes", "steps", *_STATISTICS]]
    norms = dict.fromkeys([None, *NORMS, *(norm for norm in map(_norm, rows) if norm)])
    for sparsity, norm in itertools.product(SPARSITIES, norms):
        if norm in NORMS:
            setting = f"sparse ratio {sparsity}, assigned norm {norm}"
            lines.append([str(sparsity), str(norm), "1,000", "published", *_published(setting)])
        found = [row for row in rows if (float(row["β"]), _norm(row)) == (sparsity, norm)]
        for classes, steps in dict.fromkeys((row["classes"], row["steps"]) for row in found):
            own = [row for row in found if (row["classes"], row["steps"]) == (classes, steps)]
            cells = [
                form.format(np.mean([float(row[name]) for row in own]))
                for name, form in _STATISTICS.items()
            ]
            lines.append([str(sparsity), str(norm or "–"), f"{int(classes):,}", steps, *cells])
    return markdown.table(lines)


def _norm(row: Mapping[str, str]) -> float | None:
    return float(row["γ"]) if row["γ"] else None


def _published(setting: str) -> list[str]:
    """The printed statistics of a setting of table 6."""
    with open(PUBLISHED, newline="", encoding="utf-8") as file:
        printed = {
            row["metric"]: row["value"] for row in csv.DictReader(file) if row["setting"] == setting
        }
    return [printed[name] for name in _STATISTICS]


def pictures(directory: Path, data: Mapping[str, Any]) -> dict[str, Figure]:
    """Figures 1, 6 and 7 by the names of their files."""
    trained = {name: [_trained(directory, data, name, seed)[1] for seed in SEEDS] for name in RUNS}
    frames = FRAMES[DRAWN]
    sparsity, norm, seed = SPARSITIES[0], NORMS[1], frames.seeds[0]
    return {
        "fedloge_features": feature_curves(trained),
        "fedloge_class_means": class_mean_maps({name: of[0] for name, of in trained.items()}),
        "fedloge_cosines": cosine_maps(
            {
                "start: ETF with zeros": _frame(directory, frames, sparsity, None, seed),
                f"SSE-C, {frames.steps:,} steps": _frame(directory, frames, sparsity, norm, seed),
            }
        ),
    }


def feature_curves(trained: Mapping[str, list[Features]]) -> Figure:
    """Sorted entries of class means and their variances: mean over seeds and classes, and range."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    panels = figure.subplots(1, 2)
    for number, (name, of_seeds) in enumerate(trained.items()):
        style = colors.numbered(number).of_line()
        curves = [sorted_means(found.features, found.labels) for found in of_seeds]
        for axes, per_class in zip(panels, zip(*curves, strict=True), strict=True):
            values = np.mean(per_class, axis=1)
            ranks = np.arange(1, values.shape[1] + 1)
            low, high = values.min(axis=0), values.max(axis=0)
            axes.fill_between(ranks, low, high, alpha=0.2, linewidth=0, color=style["color"])
            axes.plot(ranks, values.mean(axis=0), label=name, **style)
    labels = "mean / largest mean", "variance in the class / largest mean²"
    for axes, label in zip(panels, labels, strict=True):
        axes.set_xlabel("entry of a class mean, largest first")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    panels[0].legend(fontsize=8)
    return figure


def class_mean_maps(trained: Mapping[str, Features]) -> Figure:
    """Class means, and 30 test samples of each class, in the plane of the means."""
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    panels = figure.subplots(1, len(trained), squeeze=False)[0]
    palette = matplotlib.colormaps["tab10"]
    for axes, (name, found) in zip(panels, trained.items(), strict=True):
        means = geometry.class_means(found.features, found.labels, len(found.class_names))
        plane, share = principal_plane(means)
        for label, class_name in enumerate(found.class_names):
            own = found.features[found.labels == label][:30] @ plane.T
            axes.scatter(own[:, 0], own[:, 1], s=8, alpha=0.5, linewidths=0, color=palette(label))
            at = plane @ means[label]
            axes.scatter(*at, s=70, color=palette(label), edgecolors="black", label=class_name)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_title(f"{name}: {100 * share:.0f} % of the means' variance", fontsize=10)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    return figure


def cosine_maps(frames: Mapping[str, np.ndarray]) -> Figure:
    """Heat maps of the cosines between the columns of frames [d, C]."""
    figure = Figure(figsize=(8, 3.9), layout="constrained")
    panels = figure.subplots(1, len(frames), squeeze=False)[0]
    for axes, (name, frame) in zip(panels, frames.items(), strict=True):
        image = axes.imshow(
            geometry.cosines(frame.T),
            cmap="viridis_r",
            vmin=-0.15,
            vmax=0.15,
            interpolation="nearest",
        )
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("class")
        axes.set_ylabel("class")
    figure.colorbar(image, ax=panels, extend="max", label="cosine")
    return figure

"""Colors of curves that are told apart, also by color-blind readers, on white and on dark pages."""

import itertools
import pathlib
import re

import numpy as np
import pytest

from tff_pcdd import methods
from tff_pcdd import report as report_package
from tff_pcdd.experiment.history import History
from tff_pcdd.report import method_tables
from tff_pcdd.results.run_results import Result, Results
from tff_pcdd.studies import comparison_plots
from tff_pcdd.training import colors

# What a reader without one kind of cones sees, in linear RGB: Viénot, Brettel and Mollon 1999, and
# for tritanopes Machado, Oliveira and Fernandes 2009.
_EYES = {
    "all cones": np.eye(3),
    "protanope": [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
    "deuteranope": [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
    "tritanope": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
_STYLE = pathlib.Path(report_package.__file__).parent / "templates" / "style.css"


def rgb(color):
    return np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)])


def inverted(values):
    """What the filter `invert(1) hue-rotate(180deg)` of a dark page makes of a color."""
    rotation = [[-0.574, 1.430, 0.144], [0.426, 0.430, 0.144], [0.426, 1.430, -0.856]]
    return np.clip(np.array(rotation) @ (255 - values), 0, 255)


def linear(values):
    values = values / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(values):
    """CIE L*a*b* of a color in linear RGB."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ np.clip(values, 0, 1) / [0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(first, second):
    darker, brighter = sorted(float(linear(v) @ [0.2126, 0.7152, 0.0722]) for v in (first, second))
    return (brighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_curves_can_be_seen(dark):
    """3 is what WCAG 2 asks of graphics."""
    style = _STYLE.read_text()
    assert "filter: invert(1) hue-rotate(180deg)" in style
    page = re.findall(r"--page: (#\w{6})", style)[dark]
    for color in (*colors.CURVES, colors.BLACK):
        assert contrast(inverted(rgb(color)) if dark else rgb(color), rgb(page)) >= 3, color


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("eyes", _EYES)
def test_any_two_can_be_told_apart(eyes, dark):
    """A distance of 10 is seen at a glance."""
    drawn = map(rgb, (colors.BLACK, *colors.CURVES))
    seen = [
        lab(np.array(_EYES[eyes]) @ linear(inverted(values) if dark else values))
        for values in drawn
    ]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) >= 20


def test_each_method_has_a_style_of_its_own():
    styles = {name: colors.of_method(name) for name in methods.names()}
    assert len(set(styles.values())) == len(styles)
    assert styles["fedavg"] == ("#000000", ())
    assert styles["fedgela"] == ("#0b6bc8", ())
    # FedAvg apart, the first eight differ by their color.
    assert len({style.color for style in styles.values() if not style.dashes}) == 9


def test_methods_of_a_picture_have_different_colors_as_long_as_there_are_any():
    """CCVR's and FedETF's styles have one color, and the methods after the eighth are dashed."""
    assert colors.of_method("ccvr").color == colors.of_method("fedetf").color
    every = [name for name in methods.names() if name != "fedavg"]
    rng = np.random.default_rng(0)
    pictures = [["ccvr", "fedetf"], *(rng.choice(every, 8, replace=False) for _ in range(50))]
    for names in pictures:
        styles = colors.of_methods(["fedavg", *names])
        assert len({style.color for style in styles.values()}) == 1 + len(names)
        assert colors.of_methods(rng.permutation(["fedavg", *names])) == styles
    # CCVR is drawn more often, and keeps its own.
    assert colors.of_methods(["fedetf", "ccvr"])["ccvr"] == colors.of_method("ccvr")
    for number in (9, 12, 20, 40):
        for _ in range(20):
            names = rng.choice(every, number, replace=False)
            styles = colors.of_methods(names)
            assert len({*styles.values()}) == number
            assert len({style.color for style in styles.values()}) == 8
    assert colors.of_methods(methods.names()) == {n: colors.of_method(n) for n in methods.names()}


def test_the_charts_of_a_comparison_do_not_share_a_color():
    history = History(["round", "ga", "pa"])
    for number in (1, 2):
        history.append({"round": number, "ga": 50.0 + number, "pa": 60.0})
    runs = [
        Result("P", m, "0", False, {}, load_history=lambda: history) for m in ("ccvr", "fedetf")
    ]
    for chart in method_tables.curves(Results(runs)):
        assert len({line.color for line in chart.lines}) == 2
    _, panels = comparison_plots.curves({"P": {"ccvr": [history], "fedetf": [history]}}, "")
    assert len({line.get_color() for line in panels[0].get_lines()}) == 2


def test_training_alone_is_far_from_fedavg():
    """Both are in most comparisons; lightness, from 0 for black to 100, tells thin curves apart."""
    for name in ("local", "fedgela", "ccvr"):
        lightness, *_ = lab(linear(rgb(colors.of_method(name).color)))
        assert lightness >= (50 if name == "local" else 30), name
    # The darkest colors had a lightness of 20 and 26.
    darkest = min(lab(linear(rgb(color)))[0] for color in colors.CURVES)
    assert darkest >= 22


def test_curves_of_one_method_share_its_color_and_no_style():
    owners = ["fedavg", "ccvr", "fedavg", "local", "fedavg", "ccvr"]
    styles = colors.of_curves(owners)
    black, maroon, pink = "#000000", "#873c4b", "#d27896"
    assert [style.color for style in styles] == [black, maroon, black, pink, black, maroon]
    assert len({*styles}) == len(owners)
    assert [style.dashes for style in styles] == [(), (), (7, 4), (), (2, 4), (7, 4)]
    # CCVR's color with dashes is FedETF's, which keeps its own here.
    assert len({*colors.of_curves([*methods.names(), "ccvr"])}) >= len(methods.names())
    assert colors.of_curves([]) == []


def test_a_method_that_is_not_registered_has_one_too():
    assert colors.of_method("someones_own") == colors.of_method("someones_own")
    assert colors.of_method("someones_own").color in colors.CURVES


def test_matplotlib_draws_dashes_of_the_same_length():
    """Its lengths are in multiples of the line's width, which is 1.5 to 2.2 points."""
    assert colors.numbered(8).of_line() == {"color": "#0b6bc8", "linestyle": (0, (3.5, 2.0))}
    assert colors.numbered(0).of_line()["linestyle"] == "-"

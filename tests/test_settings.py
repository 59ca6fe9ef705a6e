"""The engine of settings: bounds and types, flat form and back, what is refused."""

import dataclasses

import pytest

from tests.data.refusals import refuses
from tff_pcdd import errors
from tff_pcdd.cli.flags import Flags
from tff_pcdd.export import ExportOptions, checks
from tff_pcdd.registry import Component, Registry
from tff_pcdd.settings import (
    WIDE,
    Setting,
    build,
    check_options,
    choice,
    describe,
    flat_name,
    flatten,
    option,
    option_fields,
    part,
    selection,
)
from tff_pcdd.training import ExperimentConfig, RunOptions


def registry_of(setting, *classes):
    made = Registry(setting, "none")
    made._loaded = True
    for cls in classes:
        made.register(cls)
    return made


@dataclasses.dataclass(frozen=True)
class Paint(Component):
    """Options that two components inherit."""

    color: str = option("red", "What it looks like.", choices=("red", "blue"), group="Look")


@dataclasses.dataclass(frozen=True)
class Square(Paint):
    name = "square"
    side: float = option(1.0, "Length of a side.", above=0, maximum=9)

    @classmethod
    def prefix(cls):
        return ""


@dataclasses.dataclass(frozen=True)
class Circle(Paint):
    name = "circle"
    radius: float = option(1.0, "Half of the width.", above=0)
    filled: bool = option(False, "Whether it is filled.", setting="full")


@dataclasses.dataclass(frozen=True)
class Point(Component):
    name = "point"


@dataclasses.dataclass(frozen=True)
class Label(Component):
    name = "label"
    text: str = option("", "Its text.")

    @classmethod
    def prefix(cls):
        return "label_"


@dataclasses.dataclass(frozen=True)
class Frame(Component):
    name = "frame"


SHAPES = registry_of("shape", Square, Circle, Point)
EXTRAS = registry_of("extras", Label, Frame)


@dataclasses.dataclass(frozen=True)
class Page:
    width: int = option(80, "Columns.", minimum=1, maximum=100, group="Page")
    title: str | None = option(None, "A heading.", type=str)

    @classmethod
    def prefix(cls):
        return "page_"

    def __post_init__(self):
        check_options(self)


@dataclasses.dataclass(frozen=True)
class Drawing:
    shape: Component = choice(SHAPES, "square", "What is drawn.", group="Shapes")
    page: Page = part(Page)
    extras: tuple[Component, ...] = selection(EXTRAS, "What is added.", group="Shapes")
    copies: int = option(1, "How many.", minimum=0)
    private: str = "no setting"

    def __post_init__(self):
        check_options(self)


@pytest.mark.parametrize(
    ("kind", "accepted", "refused", "description"),
    [
        (1, [0, -3, 2**31 - 1], [1.0, "1", True, [1]], "a whole number"),
        (1.0, [0, 2.5, -1e300], ["1", True, None.__class__], "a number"),
        (True, [True, False], [1, 0, "true"], "true or false"),
        ("", ["", "Φ"], [1, True, ["a"]], "a string"),
    ],
)
def test_types(kind, accepted, refused, description):
    cls = dataclasses.make_dataclass("One", [("x", type(kind), option(kind, "An option."))])
    for value in accepted:
        check_options(cls(value))
    for value in refused:
        with refuses("x", f"^must be {description}$") as caught:
            check_options(cls(value))
        assert caught.value.value is value
    # None means that nothing was given.
    check_options(given := cls(None))
    assert given.x is kind


@pytest.mark.parametrize("value", [2**31, 4294967299, 4294967297, -(2**31) - 1])
def test_whole_numbers_fit_into_an_int32_of_a_graph(value):
    """Otherwise 4,294,967,299 local epochs would be 3; seeds and sizes of files may be larger."""
    cls = dataclasses.make_dataclass("One", [("x", int, option(1, "An option."))])
    with refuses("x", "^must be a number of at most 32 bits, such as 2147483647$"):
        check_options(cls(value))
    seed = dataclasses.make_dataclass("One", [("x", int, option(1, "A seed.", maximum=WIDE))])
    check_options(seed(value))


@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**400])
def test_whole_numbers_have_64_bits(kind, value):
    cls = dataclasses.make_dataclass("One", [("x", kind, option(kind(1), "An option."))])
    with refuses("x", "^must be a number of at most 64 bits$"):
        check_options(cls(value))


@pytest.mark.parametrize(
    ("bounds", "accepted", "refused", "reason"),
    [
        ({"minimum": 0}, [0.0, 1.0], [-1e-9, -1.0], "^must be at least 0$"),
        ({"above": 0}, [1e-9, 1.0], [0.0, -1.0], "^must be greater than 0$"),
        ({"maximum": 0.5}, [0.5, -7.0], [0.6], "^must be at most 0.5$"),
        ({}, [1e308], [float("inf"), float("-inf"), float("nan")], "^must be a finite number$"),
    ],
)
def test_bounds(bounds, accepted, refused, reason):
    cls = dataclasses.make_dataclass("One", [("x", float, option(0.2, "An option.", **bounds))])
    for value in accepted:
        check_options(cls(value))
    for value in refused:
        with refuses("x", reason):
            check_options(cls(value))


def test_choices():
    assert Square("blue").color == "blue"
    with refuses("color", "^choose one of red, blue$"):
        Square("green")


def test_flat_names():
    names = {
        cls: [flat_name(cls, field) for field in option_fields(cls)]
        for cls in (Square, Circle, Label, Page, Drawing)
    }
    assert names == {
        Square: ["color", "side"],
        Circle: ["color", "radius", "full"],
        Label: ["label_text"],
        Page: ["page_width", "page_title"],
        Drawing: ["copies"],
    }


def test_describe():
    shape = "What is drawn. One of circle, point, square."
    extras = "What is added. Separated by commas: frame, label."
    colors = ("red", "blue")
    by_shape = {"chosen_by": "shape"}
    assert describe(Drawing) == [
        Setting("shape", shape, str, "square", None, "Shapes"),
        Setting(
            "color",
            "What it looks like.",
            str,
            "red",
            colors,
            "Look",
            applies_to=("circle", "square"),
            **by_shape,
        ),
        Setting(
            "radius",
            "Half of the width.",
            float,
            1.0,
            None,
            "Shapes",
            applies_to=("circle",),
            **by_shape,
        ),
        Setting(
            "full",
            "Whether it is filled.",
            bool,
            False,
            None,
            "Shapes",
            applies_to=("circle",),
            **by_shape,
        ),
        Setting(
            "side",
            "Length of a side.",
            float,
            1.0,
            None,
            "Shapes",
            applies_to=("square",),
            **by_shape,
        ),
        Setting("page_width", "Columns.", int, 80, None, "Page"),
        Setting("page_title", "A heading.", str, None, None, ""),
        Setting("extras", extras, str, None, None, "Shapes"),
        Setting("copies", "How many.", int, 1, None, ""),
    ]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, Drawing()),
        ({"shape": "point"}, Drawing(Point())),
        (
            {"shape": "circle", "full": True, "color": "blue", "page_width": 5},
            Drawing(Circle("blue", filled=True), Page(5)),
        ),
        (
            {"extras": "label,frame", "copies": 0, "page_title": "t"},
            Drawing(page=Page(title="t"), extras=(Label(), Frame()), copies=0),
        ),
        ({"extras": " frame , "}, Drawing(extras=(Frame(),))),
        ({"extras": ""}, Drawing()),
        # What is None counts as not given, also if it applies to something else.
        ({"shape": None, "radius": None, "copies": None, "unknown": None}, Drawing()),
    ],
)
def test_build_and_flatten(values, expected):
    built = build(Drawing, values)
    assert built == expected
    flat = flatten(built)
    assert build(Drawing, flat) == built
    given = {name: value for name, value in values.items() if value is not None}
    given["extras"] = ",".join(extra.name for extra in expected.extras) or None
    assert {name: flat[name] for name in given} == given


def test_flatten_lists_what_applies():
    assert flatten(Drawing(Circle(radius=2.0), extras=(Frame(),))) == {
        "shape": "circle",
        "color": "red",
        "radius": 2.0,
        "full": False,
        "page_width": 80,
        "page_title": None,
        "extras": "frame",
        "copies": 1,
    }
    assert "color" not in flatten(Drawing(Point()))


@pytest.mark.parametrize(
    ("values", "setting", "reason"),
    [
        ({"shape": "cube"}, "shape", "^choose one of circle, point, square$"),
        ({"radius": 2.0}, "radius", r"^applies only with shape=circle$"),
        ({"shape": "point", "color": "red"}, "color", r"^applies only with shape=circle\|square$"),
        ({"shape": "circle", "side": 1.0}, "side", "^applies only with shape=square$"),
        ({"side": 10.0}, "side", "must be at most 9"),
        ({"page_width": 0}, "page_width", "must be at least 1"),
        ({"width": 3}, "width", r"^there is no such setting; did you mean page_width\?$"),
        ({"private": "x"}, "private", "^there is no such setting$"),
        ({"label_text": "x", "extras": "label"}, "label_text", "^there is no such setting$"),
        ({"extras": "label,banner"}, "extras", "^choose one of frame, label$"),
        ({"extras": "label,label"}, "extras", "^name each once$"),
        ({"extras": ["label"]}, "extras", "^must be a string of names, separated by commas$"),
        ({"copies": -1}, "copies", "must be at least 0"),
    ],
)
def test_refusals(values, setting, reason):
    with refuses(setting, reason):
        build(Drawing, values)


def test_values_that_are_given_stay_as_they_were():
    values = {"shape": "circle", "radius": 2.0}
    build(Drawing, values)
    assert values == {"shape": "circle", "radius": 2.0}


def test_a_component_that_is_not_registered_is_flattened_by_its_name():
    @dataclasses.dataclass(frozen=True)
    class Star(Component):
        name = "star"
        points: int = option(5, "Points.")

    drawing = Drawing(Star(7), extras=(Star(), Frame()))
    flat = flatten(drawing)
    assert (flat["shape"], flat["points"], flat["extras"]) == ("star", 7, "star,frame")
    with refuses("shape", "choose one of"):
        build(Drawing, flat)


def test_errors_hold_setting_value_and_reason():
    error = errors.SettingError("rounds", 0, "must be at least 1")
    assert (error.setting, error.value, error.reason) == ("rounds", 0, "must be at least 1")
    assert str(error) == "rounds=0: must be at least 1"
    assert str(errors.SettingError("workers", None, "is missing")) == "workers: is missing"
    assert isinstance(error, ValueError)


def test_what_is_registered_later_has_settings_at_once():
    shapes = registry_of("shape", Square)
    drawing = dataclasses.make_dataclass(
        "Drawing", [("shape", Component, choice(shapes, "square", "What is drawn."))]
    )
    assert [setting.name for setting in describe(drawing)] == ["shape", "color", "side"]
    with refuses("radius", "^there is no such setting$"):
        build(drawing, {"radius": 2.0})
    shapes.register(Circle)
    names = [setting.name for setting in describe(drawing)]
    assert sorted(names) == ["color", "full", "radius", "shape", "side"]
    with refuses("radius", "^applies only with shape=circle$"):
        build(drawing, {"radius": 2.0})
    assert build(drawing, {"shape": "circle", "radius": 2.0}).shape == Circle(radius=2.0)
    # A caller may change its list.
    describe(drawing).clear()
    assert len(describe(drawing)) == 5


@pytest.mark.parametrize("name", ["copies", "page_width", "side"])
def test_an_option_with_the_name_of_another_setting_is_refused(name):
    """Of the class itself, of a part, and of another kind of components: each would get both."""
    length = ("length", int, option(1, "Its length.", setting=name))
    line = dataclasses.make_dataclass(
        "Line", [length], bases=(Component,), namespace={"name": "line"}, frozen=True
    )
    chosen = ("line", Component, choice(registry_of("line", line), "line", "What is drawn."))
    drawing = dataclasses.make_dataclass("Drawing", [chosen], bases=(Drawing,), frozen=True)
    with refuses("line", f"^its option '{name}' has the name of another setting") as caught:
        describe(drawing)
    assert caught.value.value == "line"
    assert caught.value.reason.endswith(
        " of shape=square; rename it" if name == "side" else " setting; rename it"
    )


def test_empty_names_do_not_count_in_any_list():
    options = RunOptions(diagnostics="nc, ,", tracking=" ,")
    assert (options.diagnostic_names(), options.tracker_names()) == (["nc"], [])
    assert ExportOptions(format=",keras,").formats() == ["keras"]
    assert checks.choose_clients(["a", "b"], "b,") == {1: "b"}
    config = ExperimentConfig.from_settings(
        metrics="balanced,", schedule="step", schedule_milestones="1,2,"
    )
    assert config.to_settings()["metrics"] == "balanced"
    for setting, make in (
        ("format", lambda: ExportOptions(format=" ,")),
        ("clients", lambda: checks.choose_clients(["a", "b"], ",")),
    ):
        with refuses(setting, ""):
            make()
    flags = Flags(["train", "--seeds=0,,2,", "--none=,"])
    flags.add(list, "seeds", ["0"], "Seeds.")
    flags.add(list, "none", ["a"], "Nothing.")
    flags.parse()
    assert (flags["seeds"], flags["none"]) == (["0", "2"], [])

"""Registries: components by name, loaded when first asked, registered again by a notebook."""

import dataclasses
import sys
import textwrap

import pytest

from tests.data.refusals import refuses
from tff_pcdd import methods, runtime
from tff_pcdd.registry import Component, Registry
from tff_pcdd.settings import option


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with two modules, each of which registers a component."""
    folder = tmp_path / "some_shapes"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from tff_pcdd.registry import Registry\nregistry = Registry('shape', 'some_shapes')\n"
    )
    for name in ("square", "circle"):
        (folder / f"{name}.py").write_text(
            textwrap.dedent(f"""
            import dataclasses
            from some_shapes import registry
            from tff_pcdd.registry import Component

            @registry.register
            @dataclasses.dataclass(frozen=True)
            class {name.title()}(Component):
                name = "{name}"
                known = tuple(registry.names())
            """)
        )
    monkeypatch.syspath_prepend(tmp_path)
    yield "some_shapes"
    for name in [name for name in sys.modules if name.split(".")[0] == "some_shapes"]:
        del sys.modules[name]


@pytest.fixture
def registry(monkeypatch):
    """A registry without a package."""
    made = Registry("shape", "none")
    monkeypatch.setattr(made, "_loaded", True)
    return made


def make(name, setting=None, module=__name__, qualname="Shape"):
    """A component class, as a cell of a notebook makes it each time it runs."""

    class Shape(Component):
        pass

    Shape.name = name
    Shape.size = option(1.0, "Length of a side.", above=0, maximum=9)
    Shape.__annotations__ = {"size": float}
    Shape.__module__, Shape.__qualname__ = module, qualname
    if setting:
        Shape.prefix = classmethod(lambda cls: setting)
    return dataclasses.dataclass(frozen=True)(Shape)


def test_modules_are_imported_when_first_asked(package):
    """They may ask the registry themselves."""
    module = __import__(package)
    assert "some_shapes.square" not in sys.modules
    assert module.registry.names() == ["circle", "square"]
    assert "some_shapes.square" in sys.modules
    assert list(module.registry.classes()) == ["circle", "square"]
    assert module.registry.create("square") == sys.modules["some_shapes.square"].Square()


def test_names_are_sorted_and_lead_to_classes(registry):
    square, circle = make("square", qualname="Square"), make("circle", qualname="Circle")
    assert registry.register(square) is square
    registry.register(circle)
    assert registry.names() == ["circle", "square"]
    assert registry.get("square") is square
    assert registry.create("circle", size=2.0) == circle(2.0)
    assert registry.create("circle") == circle(1.0)


def test_an_undecorated_class_is_refused(registry):
    class Shape(Component):
        name = "shape"
        size: float = option(1.0, "Its size.")

    with refuses("shape", "^decorate Shape with @dataclasses.dataclass"):
        registry.register(Shape)
    assert registry.register(dataclasses.dataclass(frozen=True)(Shape)) is Shape


def test_unknown_names_and_options_are_refused(registry):
    registry.register(make("square", "square_"))
    with refuses("shape", r"^choose one of square; did you mean square\?$"):
        registry.get("squares")
    with refuses("shape", "^choose one of square$") as caught:
        registry.get("cube")
    assert caught.value.value == "cube"
    for name in (["square"], None, 3):
        with refuses("shape", "^choose one of square$"):
            registry.get(name)
    with refuses("square_depth", "^square has no such option, only size$") as caught:
        registry.create("square", depth=3)
    assert caught.value.value == 3
    with refuses("square_size", "must be greater than 0"):
        registry.create("square", size=0.0)
    with refuses("fedgela_mu", "fedgela has no such option, only .*scale, "):
        methods.create("fedgela", mu=1)
    with refuses("workers", "tff has no such option, only insecure"):
        runtime.create("tff", workers="a:1")


def test_a_class_needs_a_name(registry):
    with pytest.raises(ValueError, match="Shape needs a class attribute `name`"):
        registry.register(make(""))


def test_a_cell_can_be_run_again(registry):
    """The newer class takes the older one's place."""
    first, second = make("square"), make("square")
    registry.register(first)
    registry.register(second)
    assert registry.get("square") is second
    assert registry.names() == ["square"]


@pytest.mark.parametrize("other", [{"qualname": "Other"}, {"module": "another_module"}])
def test_a_name_belongs_to_one_class(registry, other):
    first = registry.register(make("square"))
    with pytest.raises(ValueError, match=r"shape=square: is already registered by .*Shape"):
        registry.register(make("square", **other))
    assert registry.get("square") is first


def test_the_name_of_a_built_in_component_cannot_be_taken():
    assert "fedavg" in methods.names()
    with pytest.raises(ValueError, match="already registered"):
        methods.register(
            dataclasses.make_dataclass(
                "Mine", [], bases=(methods.Method,), namespace={"name": "fedavg"}, frozen=True
            )
        )
    assert methods.get("fedavg").__name__ == "FedAvg"

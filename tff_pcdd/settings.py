"""Settings are declared once, in the dataclass of the layer that uses them; elsewhere, they are
flat.

A dataclass declares its settings as fields of four kinds:

    option     a plain value with help text and bounds
    part       another dataclass with settings of its own
    choice     a registered component, chosen by name, with the settings of that component
    selection  several registered components, chosen by their names

Nested in Python, settings are flat on the command line and in config.json. This module converts
between the two: `describe` lists all flat settings of a dataclass, `build` makes an instance from
them, and `flatten` is the reverse of `build`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from tff_pcdd import other_names
from tff_pcdd.errors import SettingError, one_of, question

T = TypeVar("T")

if TYPE_CHECKING:
    from tff_pcdd.registry import Registry

    class Named(Generic[T]):
        """The type of a field that is a component, and may be given by the component's name."""

        def __get__(self, instance: object, owner: Any) -> T: ...

        def __set__(self, instance: object, value: T | str) -> None: ...


# Suggested defaults, by flat names, derived from the fields before; used only for settings that the
# user did not give.
Suggestion = Callable[[Mapping[str, Any]], Mapping[str, Any]]


# The largest whole number that config.json and all programs that read it can hold.
WIDE = 2**63 - 1


def option(
    default: Any,
    help: str,
    *,
    choices: Sequence[str] | None = None,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    type: type | None = None,
    group: str = "",
    setting: str | None = None,
    path: bool = False,
) -> Any:
    """A dataclass field that is a setting.

    Args:
        default: the default value; None means "not given" and is not checked.
        help: one or two sentences for `--help`.
        choices: the permitted strings.
        minimum: the smallest permitted value.
        above: a bound that the value has to exceed.
        maximum: the largest permitted value. By default, a whole number has at most 32 bits, as in
            graphs; what has more needs a maximum such as `WIDE`.
        type: the type of the value, if the default does not show it because it is None.
        group: heading under which `--help` lists the setting; by default the class attribute
            `heading` of its dataclass, or for components the heading of the `choice`.
        setting: its flat name; by default the field's name after the prefix that the class method
            `prefix` returns, if there is one.
        path: whether the value is a path of a file or directory that is read.

    Returns:
        A `dataclasses.field`.
    """
    return dataclasses.field(
        default=default,
        metadata={
            "kind": "option",
            "help": help,
            "choices": tuple(choices) if choices else None,
            "minimum": minimum,
            "above": above,
            "maximum": maximum,
            "type": type or default.__class__,
            "group": group,
            "setting": setting,
            "path": path,
            "default": default,
        },
    )


def part(cls: type, *, suggest: Suggestion | None = None) -> Any:
    """A dataclass field that holds further settings.

    Args:
        cls: a dataclass whose fields are made by the functions of this module.
        suggest: see `choice`.
    """
    metadata = {"kind": "part", "cls": cls, "suggest": suggest}
    return dataclasses.field(default_factory=cls, metadata=metadata)


def choice(
    registry: Registry,
    default: str,
    help: str,
    *,
    group: str = "",
    suggest: Suggestion | None = None,
) -> Any:
    """A dataclass field that is a registered component.

    Args:
        registry: the registry of the components; it gives the setting its name.
        default: the name of the default component, with its default settings.
        help: one or two sentences for `--help`, which also lists the names.
        group: heading under which `--help` lists the setting and those of the components.
        suggest: from the fields before this one, flat settings that `build` uses where none are
            given. A default in Python cannot depend on other fields, so it does not apply there.
    """
    return dataclasses.field(
        default_factory=lambda: registry.create(default),
        metadata={
            "kind": "choice",
            "registry": registry,
            "default": default,
            "help": help,
            "group": group,
            "suggest": suggest,
        },
    )


def selection(registry: Registry, help: str, *, group: str = "") -> Any:
    """A dataclass field that is a tuple of registered components, none by default.

    In flat settings it is a string of names, separated by commas; the components have their default
    settings.
    """
    return dataclasses.field(
        default=(),
        metadata={"kind": "selection", "registry": registry, "help": help, "group": group},
    )


@dataclasses.dataclass(frozen=True)
class Setting:
    """One flat setting.

    Attributes:
        name: the name in config.json and, after two dashes, on the command line.
        help: one or two sentences.
        type: bool, int, float or str.
        default: None where there is none.
        choices: the permitted strings; None for any.
        group: heading under which `--help` lists it.
        chosen_by: the setting that chooses among components; None if this one always applies.
        applies_to: the names of the components that have this setting.
        path: whether the value is a path of a file or directory that is read.
    """

    name: str
    help: str
    type: type
    default: Any
    choices: tuple[str, ...] | None
    group: str
    chosen_by: str | None = None
    applies_to: tuple[str, ...] = ()
    path: bool = False


def option_fields(cls: type) -> list[dataclasses.Field]:
    """The fields of a dataclass that were made by `option`."""
    return [field for field in dataclasses.fields(cls) if field.metadata.get("kind") == "option"]


def flat_name(cls: type, field: dataclasses.Field) -> str:
    """The flat name of an option."""
    prefix = cls.prefix() if hasattr(cls, "prefix") else ""
    return field.metadata["setting"] or f"{prefix}{field.name}"


def check_options(instance: Any) -> None:
    """Checks the options of a dataclass instance against their types and bounds.

    Components that are given by their names are created, with their default settings. An option
    that is None was not given, as in flat settings.

    Raises:
        SettingError: the first option whose value is of the wrong type or out of bounds, a name
            that no component has, or a part of another type.
    """
    for field in dataclasses.fields(instance):
        kind, value = field.metadata.get("kind"), getattr(instance, field.name)
        if kind == "part" and not isinstance(value, field.metadata["cls"]):
            of = field.metadata["cls"].__name__
            text = f"must be a {of}, such as {type(instance).__name__}({field.name}={of}(…))"
            raise SettingError(field.name, value, text)
        if kind == "choice" and not hasattr(value, "name"):
            object.__setattr__(instance, field.name, field.metadata["registry"].create(value))
        elif kind == "selection" and any(isinstance(each, str) for each in value):
            created = _create_selection(field.metadata["registry"], value)
            object.__setattr__(instance, field.name, created)
    for field in option_fields(type(instance)):
        value = getattr(instance, field.name)
        if value is None:
            object.__setattr__(instance, field.name, field.metadata["default"])
        elif reason := objection(value, field.metadata):
            raise SettingError(flat_name(type(instance), field), value, reason)


def describe(cls: type) -> list[Setting]:
    """All flat settings of a dataclass, in the order of its fields.

    Raises:
        SettingError: an option of a registered component has the name of another setting.
    """
    registered = tuple(tuple(registry.classes().values()) for registry in registries(cls))
    return list(_describe(cls, registered))


# Sweeps make thousands of configurations. New components are another argument.
@functools.lru_cache(maxsize=64)
def _describe(cls: type, registered: tuple[tuple[type, ...], ...]) -> list[Setting]:
    del registered
    settings: list[Setting] = []
    for field in dataclasses.fields(cls):
        data = field.metadata
        kind = data.get("kind")
        if kind == "option":
            settings.append(_describe_option(cls, field))
        elif kind == "part":
            settings += describe(data["cls"])
        elif kind == "choice":
            settings += _describe_choice(data, _group(cls, data))
        elif kind == "selection":
            names = ", ".join(data["registry"].names()) or "none is registered"
            text = f"{data['help']} Separated by commas: {names}."
            group = _group(cls, data)
            settings.append(Setting(data["registry"].setting, text, str, None, None, group))
    known: dict[str, Setting] = {}
    for setting in settings:
        other = known.setdefault(setting.name, setting)
        if other is not setting:
            _refuse_shared_name(*sorted([setting, other], key=lambda each: not each.chosen_by))
    return settings


def _refuse_shared_name(own: Setting, other: Setting) -> NoReturn:
    """Refuses an option of components, in whose place `build` would take another setting."""
    of = f" of {other.chosen_by}={'|'.join(other.applies_to)}" if other.chosen_by else ""
    reason = f"its option {own.name!r} has the name of another setting{of}; rename it"
    raise SettingError(own.chosen_by or own.name, "|".join(own.applies_to) or None, reason)


def registries(cls: type) -> Iterator[Registry]:
    """The registries from which a dataclass has components, in the order of its fields."""
    for field in dataclasses.fields(cls):
        if field.metadata.get("kind") == "part":
            yield from registries(field.metadata["cls"])
        elif "registry" in field.metadata:
            yield field.metadata["registry"]


def _describe_option(cls: type, field: dataclasses.Field) -> Setting:
    data = field.metadata
    return Setting(
        flat_name(cls, field),
        data["help"],
        data["type"],
        data["default"],
        data["choices"],
        _group(cls, data),
        path=data["path"],
    )


def _group(cls: type, data: Mapping[str, Any]) -> str:
    return data["group"] or getattr(cls, "heading", "")


def _describe_choice(data: Mapping[str, Any], group: str) -> list[Setting]:
    registry = data["registry"]
    names = ", ".join(registry.names())
    text = f"{data['help']} One of {names}."
    chooser = Setting(registry.setting, text, str, data["default"], None, group)
    found: dict[str, Setting] = {}
    defaults: dict[str, dict[str, Any]] = {}
    for name, cls in registry.classes().items():
        for field in option_fields(cls):
            setting = _describe_option(cls, field)
            defaults.setdefault(setting.name, {})[name] = setting.default
            known = found.get(setting.name, setting)
            found[setting.name] = dataclasses.replace(
                # Where defaults differ, the one that applies if nothing is chosen is shown.
                setting if name == data["default"] else known,
                group=known.group or group,
                chosen_by=registry.setting,
                applies_to=(*known.applies_to, name),
            )
    return [
        chooser,
        *(
            dataclasses.replace(s, help=s.help + _other_defaults(registry, s, defaults[s.name]))
            for s in found.values()
        ),
    ]


def _other_defaults(registry: Registry, setting: Setting, defaults: Mapping[str, Any]) -> str:
    """A sentence about the components with another default than the one that is shown."""
    others: dict[Any, list[str]] = {}
    for name, default in defaults.items():
        if default != setting.default:
            others.setdefault(default, []).append(name)
    return "".join(
        f" With {registry.setting}={'|'.join(names)}, the default is {default}."
        for default, names in others.items()
    )


def build(cls: type[T], values: Mapping[str, Any]) -> T:
    """Makes an instance of a dataclass from flat settings.

    Args:
        cls: a dataclass whose fields are made by the functions of this module.
        values: settings by their flat names. One that is None counts as not given.

    Raises:
        SettingError: a setting is unknown, has a wrong value, or belongs to a component that was
            not chosen.
    """
    remaining = {name: value for name, value in values.items() if value is not None}
    instance = _take(cls, remaining)
    for name, value in remaining.items():
        known = [setting.name for setting in describe(cls)]
        meant = question(other_names.similar(name, known))
        raise SettingError(name, value, f"there is no such setting{meant}")
    return instance


def _take(cls: type[T], values: dict[str, Any]) -> T:
    """Makes an instance, and removes the settings that it uses from `values`."""
    arguments: dict[str, Any] = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        data = field.metadata
        kind = data.get("kind")
        if suggest := data.get("suggest"):
            for name, value in suggest(arguments).items():
                values.setdefault(name, value)
        if kind == "option":
            name = flat_name(cls, field)
            if name in values:
                arguments[field.name] = values.pop(name)
        elif kind == "part":
            arguments[field.name] = _take(data["cls"], values)
        elif kind == "choice":
            arguments[field.name] = _take_component(data["registry"], data["default"], values)
        elif kind == "selection":
            arguments[field.name] = _take_selection(data["registry"], values)
    return cls(**arguments)


def _take_selection(registry: Registry, values: dict[str, Any]) -> tuple[Any, ...]:
    given = values.pop(registry.setting, "")
    if not isinstance(given, str):
        reason = "must be a string of names, separated by commas"
        raise SettingError(registry.setting, given, reason)
    return _create_selection(registry, given)


def _create_selection(registry: Registry, given: str | Sequence[Any]) -> tuple[Any, ...]:
    """The components that a string of names, or a sequence with names, stands for."""
    several = split_names(given) if isinstance(given, str) else given
    made = [registry.create(each) if isinstance(each, str) else each for each in several]
    if len({each.name for each in made}) < len(made):
        raise SettingError(registry.setting, given, "name each once")
    return tuple(made)


def _take_component(registry: Registry, default: str, values: dict[str, Any]) -> Any:
    chosen = registry.get(values.pop(registry.setting, default))
    component = _take(chosen, values)
    owners: dict[str, list[str]] = {}
    for name, cls in registry.classes().items():
        for field in option_fields(cls):
            owners.setdefault(flat_name(cls, field), []).append(name)
    for name in sorted(owners.keys() & values.keys()):
        reason = f"applies only with {registry.setting}={'|'.join(owners[name])}"
        raise SettingError(name, values[name], reason)
    return component


def flatten(instance: Any, *, changed: bool = False) -> dict[str, Any]:
    """The flat settings of a dataclass instance: those that apply, by name.

    Args:
        instance: its fields are made by the functions of this module.
        changed: leave out those that `build` gives their defaults.
    """
    return _flatten(instance, changed, {})


def _flatten(instance: Any, changed: bool, suggested: dict[str, Any]) -> dict[str, Any]:
    """As `flatten`; `suggested` has the settings that other fields suggest."""
    values: dict[str, Any] = {}

    def add(name: str, value: Any, default: Any) -> None:
        if not changed or value != default or value != suggested.get(name, default):
            values[name] = value

    for field in dataclasses.fields(instance):
        data, value = field.metadata, getattr(instance, field.name)
        kind = data.get("kind")
        if suggest := data.get("suggest"):
            suggested = {**suggest(vars(instance)), **suggested}
        if kind == "part":
            values |= _flatten(value, changed, suggested)
        elif kind == "option":
            add(flat_name(type(instance), field), value, data["default"])
        elif kind == "choice":
            add(data["registry"].setting, value.name, data["default"])
            values |= _flatten(value, changed, suggested)
        elif kind == "selection":
            names = ",".join(each.name for each in value) or None
            add(data["registry"].setting, names, data.get("default"))
    return values


# Which values a setting of a type accepts, and how an error describes them.
_TYPES: dict[type, tuple[type | tuple[type, ...], str]] = {
    bool: (bool, "true or false"),
    int: (int, "a whole number"),
    float: ((int, float), "a number"),
    str: (str, "a string"),
}


def split_names(value: str | Sequence[str] | None) -> list[str]:
    """The names in a setting that separates them by commas. Empty ones do not count.

    Example:
        >>> split_names("geometry, tsne,"), split_names(None)
        (['geometry', 'tsne'], [])
    """
    names = value.split(",") if isinstance(value, str) else value or ()
    return [name for name in map(str.strip, names) if name]


def objection(value: Any, bounds: Mapping[str, Any]) -> str | None:
    """What is wrong with the value of a setting; None if nothing is.

    Args:
        value: of any type.
        bounds: the type of the setting (`type`), what it may be (`choices`), and its bounds
            (`above`, `minimum`, `maximum`), each None if there is none.
    """
    if reason := objection_to_type(value, bounds["type"]):
        return reason
    if bounds["choices"] and value not in bounds["choices"]:
        return one_of(value, bounds["choices"])
    if isinstance(value, float) and not math.isfinite(value):
        return "must be a finite number"
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            return "must be a number of at most 64 bits"
        if bounds["type"] is int and bounds["maximum"] is None and not -(2**31) <= value < 2**31:
            # It would wrap around where it becomes an int32 of a graph.
            return "must be a number of at most 32 bits, such as 2147483647"
    if bounds["above"] is not None and value <= bounds["above"]:
        return f"must be greater than {bounds['above']}"
    if bounds["minimum"] is not None and value < bounds["minimum"]:
        return f"must be at least {bounds['minimum']}"
    if bounds["maximum"] is not None and value > bounds["maximum"]:
        return f"must be at most {bounds['maximum']}"
    return None


def objection_to_type(value: Any, kind: type) -> str | None:
    """As `objection`, for a setting of this type that may have any value."""
    accepted, description = _TYPES.get(kind, (object, ""))
    if isinstance(value, accepted) and isinstance(value, bool) == (kind is bool):
        return None
    return f"must be {description}"

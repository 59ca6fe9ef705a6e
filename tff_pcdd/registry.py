"""Components by name: methods, data sources, partitions, backbones, optimizers and others.

A component is a frozen dataclass whose fields are its settings. A registered component can be
chosen by its name, and its settings appear on the command line, in `--help` and in config.json
without being mentioned anywhere else:

    @registry.register
    @dataclasses.dataclass(frozen=True)
    class Halves(Partition):
        name = "halves"
        first_share: float = option(0.5, "Share of the first client.", above=0, maximum=1)
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from typing import Any, ClassVar, Generic, TypeVar

from tff_pcdd.errors import SettingError, nearest, one_of, question
from tff_pcdd.settings import check_options, option_fields


@dataclasses.dataclass(frozen=True)
class Component:
    """What can be chosen by name; subclasses add their settings as fields.

    Attributes:
        name: the name by which it is chosen.

    Raises:
        SettingError: a setting is out of bounds.
    """

    name: ClassVar[str] = ""

    def __post_init__(self):
        check_options(self)

    @classmethod
    def prefix(cls) -> str:
        """The prefix of the names of its settings on the command line, such as `fedgela_`."""
        return ""


def is_built_in(definition: Any) -> bool:
    """Whether a class or a function is defined in this package, and not in a module of the user.

    Example:
        >>> is_built_in(Component), is_built_in(dataclasses.field)
        (True, False)
    """
    # A function that a program makes from text has no module.
    return (definition.__module__ or "").startswith("tff_pcdd.")


C = TypeVar("C", bound=Component)


class Registry(Generic[C]):
    """The components of one kind.

    Args:
        setting: the setting that chooses among them, such as "algorithm".
        package: the package whose modules define the built-in ones; they are imported when the
            registry is first used.
    """

    def __init__(self, setting: str, package: str):
        self.setting = setting
        self._package = package
        self._classes: dict[str, type[C]] = {}
        self._loaded = False

    def register(self, cls: type[C]) -> type[C]:
        """Class decorator that makes a component known by its `name`.

        A class with the same module and qualified name replaces an earlier one, so that a
        notebook's cell can be run again.

        Raises:
            SettingError: the class has no name, is no dataclass with its options, or has one
                without a default, or another class has the same name.
        """
        if not cls.__module__.startswith(f"{self._package}."):
            # Loads the built-in components first, so that their names are known to be taken.
            self.classes()
        if not cls.name:
            raise SettingError(self.setting, None, f"{cls.__name__} needs a class attribute `name`")
        # Decorated, an option without a default is no attribute, and another one its default.
        if any(isinstance(value, dataclasses.Field) for value in vars(cls).values()):
            reason = f"decorate {cls.__name__} with @dataclasses.dataclass(frozen=True), first"
            raise SettingError(self.setting, cls.name, reason)
        for field in dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ():
            if field.default is field.default_factory is dataclasses.MISSING:
                meaning = f'`{field.name}: float = option(0.1, "What it is.")`'
                reason = f"{field.name!r} of {cls.__name__} needs a default, such as {meaning}"
                raise SettingError(self.setting, cls.name, reason)
        known = self._classes.get(cls.name, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            place = f"{known.__module__}.{known.__qualname__}"
            reason = f"is already registered by {place}; choose another name for {cls.__name__}"
            raise SettingError(self.setting, cls.name, reason)
        self._classes[cls.name] = cls
        return cls

    def classes(self) -> dict[str, type[C]]:
        """All registered components by name, in alphabetical order."""
        if not self._loaded:
            # This is set first, because the modules may use the registry themselves.
            self._loaded = True
            # A single module registers its components itself.
            path = getattr(importlib.import_module(self._package), "__path__", ())
            for module in pkgutil.iter_modules(path):
                importlib.import_module(f"{self._package}.{module.name}")
        return dict(sorted(self._classes.items()))

    def names(self) -> list[str]:
        """The names of all registered components, sorted."""
        return list(self.classes())

    def get(self, name: str) -> type[C]:
        """The class of a component.

        Raises:
            SettingError: no component has that name.
        """
        classes = self.classes()
        if not isinstance(name, str) or name not in classes:
            raise SettingError(self.setting, name, one_of(name, classes))
        return classes[name]

    def create(self, name: str, **options: Any) -> C:
        """Makes a component with the given settings; the others have their defaults.

        Raises:
            SettingError: no component has that name, or a setting is unknown or out of bounds.
        """
        cls = self.get(name)
        known = [field.name for field in option_fields(cls)]
        for option, value in options.items():
            if option not in known:
                reason = f"{name} has no such option, only {', '.join(known) or 'none'}"
                reason += question(nearest(option, known))
                raise SettingError(f"{cls.prefix()}{option}", value, reason)
        return cls(**options)

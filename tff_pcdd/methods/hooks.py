"""Hooks of classes that are not of the package: what they take, and what they return."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tff_pcdd.registry import is_built_in

# The Python types of what hooks return, by the first word of the annotation.
_KINDS: Mapping[str, Any] = {"list": (list, tuple), "tuple": (list, tuple), "dict": Mapping}
# Errors of those that call these hooks say more.
_EXPLAINED = ("loss", "upload", "server_change", "server_update")


class CheckedHooks:
    """A class whose hooks are refused if they are from elsewhere and return another kind of value.

    Hooks call each other, also from methods of the package, so those that call them cannot check
    them all.
    """

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        for name, hook in [*vars(cls).items()]:
            # A hook of the package under another class's name stays the same object.
            if inspect.isfunction(hook) and not is_built_in(hook):
                setattr(cls, name, _checked(name, hook, _kind(cls, name)))


def _kind(cls: type, name: str) -> str:
    """What the package's first class with a hook says that it returns; empty if it says nothing."""
    hooks = [
        vars(base)[name] for base in cls.__mro__[1:] if is_built_in(base) and name in vars(base)
    ]
    return getattr(hooks[-1], "__annotations__", {}).get("return") or "" if hooks else ""


def _checked(name: str, hook: Callable[..., Any], kind: str) -> Callable[..., Any]:
    """A hook that is refused if its result is not of the annotated kind."""
    expected = _KINDS.get(kind.partition("[")[0])
    if name in _EXPLAINED or (expected is None and kind != "tf.Tensor"):
        return hook

    @functools.wraps(hook)
    def checked(self: Any, *arguments: Any, **named: Any) -> Any:
        result = hook(self, *arguments, **named)
        if expected is None:
            is_right = result is not None and not isinstance(result, (Mapping, list, tuple))
        else:
            is_right = isinstance(result, expected)
        if not is_right:
            reason = f"has to return `{kind}`, not {type(result).__name__}"
            raise TypeError(f"{self.name}: {name} {reason}")
        return result

    return checked

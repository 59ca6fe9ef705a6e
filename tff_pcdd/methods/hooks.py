"""Hooks of classes that are not of the package: what they take, and what they return."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tff_pcdd.errors import SettingError, question
from tff_pcdd.registry import is_built_in

# The Python types of what hooks return, by the first word of the annotation.
_KINDS: Mapping[str, Any] = {"list": (list, tuple), "tuple": (list, tuple), "dict": Mapping}
# Errors of those that call these hooks say more.
_EXPLAINED = ("loss", "upload", "server_change", "server_update")


class CheckedHooks:
    """A class whose hooks are checked if they are from elsewhere.

    A hook that cannot be called, or never would be, is refused when the class is defined; one that
    returns another kind of value, when it is called. Hooks call each other, also from methods of
    the package, so those that call them cannot check them all.
    """

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if is_built_in(cls):
            return
        hooks = _hooks(cls)
        for name, value in [*vars(cls).items()]:
            # A hook of the package under another class's name stays the same object.
            if inspect.isfunction(value) and is_built_in(value):
                continue
            if reason := _refusal(name, value, hooks):
                own_name = getattr(cls, "name", "") or None
                raise SettingError("algorithm", own_name, f"{cls.__name__}: {reason}")
            if inspect.isfunction(value) and name in hooks:
                kind = getattr(hooks[name], "__annotations__", {}).get("return") or ""
                setattr(cls, name, _checked(name, value, kind))


def _hooks(cls: type) -> dict[str, Callable[..., Any]]:
    """The hooks of the package that a class may replace, as the first class with them has them."""
    bases = [base for base in cls.__mro__[1:] if is_built_in(base)]
    return {
        name: value
        for base in bases
        for name, value in vars(base).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }


def _refusal(name: str, value: Any, hooks: Mapping[str, Callable[..., Any]]) -> str:
    """Why an attribute of a class cannot be its hook, or would never be called; or empty."""
    if name in hooks:
        if inspect.isfunction(value):
            expected = _parameters(hooks[name])
            try:
                inspect.signature(value).bind(*expected)
            except TypeError:
                return f"{name} has to have the parameters ({', '.join(expected)})"
        elif not callable(value) and not hasattr(value, "__get__"):
            return f"{name} is a hook; rename the option"
    elif inspect.isfunction(value):
        # A function that helps may have a similar name, but hardly the same parameters.
        close = difflib.get_close_matches(name, hooks, cutoff=0.9)
        meant = [hook for hook in close if _parameters(hooks[hook]) == _parameters(value)]
        if meant:
            return f"there is no hook {name}{question(meant)}"
    return ""


def _parameters(hook: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(hook).parameters)


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

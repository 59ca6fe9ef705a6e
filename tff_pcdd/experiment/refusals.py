"""Refusals of several methods by the same settings, in one error."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from tff_pcdd.errors import SettingError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Refusals:
    """Collects why methods are refused, so that the user learns of all of them at once.

    Example:
        >>> refusals = Refusals()
        >>> for name in ("fedavg", "feddc", "fednova"):
        ...     with refusals.of(name):
        ...         if name != "fedavg":
        ...             raise SettingError("client_optimizer", "adam", f"{name} needs SGD")
        >>> print(refusals.error())
        client_optimizer=adam: cannot be used with feddc, fednova (feddc needs SGD)
    """

    def __init__(self) -> None:
        self._tried: dict[str, None] = {}
        self._errors: dict[str, SettingError] = {}

    @contextlib.contextmanager
    def of(self, method: str) -> Iterator[None]:
        """Collects the first refusal of a method that is raised inside."""
        self._tried[method] = None
        try:
            yield
        except SettingError as error:
            self._errors.setdefault(method, error)

    def __contains__(self, method: str) -> bool:
        """Whether a method has been refused."""
        return method in self._errors

    def error(self) -> SettingError | None:
        """One error for all refusals; None if there are none.

        It is the first one if that is the only one, or if all methods are refused for the same
        reason, which then has nothing to do with them.
        """
        if not self._errors:
            return None
        first = next(iter(self._errors.values()))
        reasons = {str(error) for error in self._errors.values()}
        if len(reasons) == 1 and len(self._errors) in (1, len(self._tried)):
            return first
        groups: dict[tuple[str, str, str], list[str]] = {}
        for method, error in self._errors.items():
            kind = error.kind.replace(method, "")
            groups.setdefault((error.setting, str(error.value), kind), []).append(method)
        texts: list[str] = []
        for names in groups.values():
            error = self._errors[names[0]]
            text = f" cannot be used with {', '.join(names)} ({error.reason})"
            if error.value == names[0]:  # the method itself
                text = f": {error.reason}"
            texts.append(f"{error.given}{text}" if texts else text.lstrip(": "))
        return SettingError(first.setting, first.value, "; ".join(texts))

    def check(self) -> None:
        """Raises the error, if there is one."""
        if (error := self.error()) is not None:
            raise error


def for_all(
    action: Callable[[_Item], _Result], runs: Iterable[_Item], method: Callable[[_Item], str]
) -> list[_Result]:
    """Applies a function to runs, but to no further run of a method that has been refused.

    Those are most likely refused for the same reason.

    Raises:
        SettingError: as the function; names all methods that are refused.
    """
    refusals = Refusals()
    results: list[_Result] = []
    for run in runs:
        name = method(run)
        if name not in refusals:
            with refusals.of(name):
                results.append(action(run))
    refusals.check()
    return results

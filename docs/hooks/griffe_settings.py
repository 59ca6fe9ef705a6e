"""Shows settings with their help texts and bounds, and examples as code, in the API reference."""

from __future__ import annotations

import ast
import re
from typing import Any

import griffe

_BOUNDS = {"minimum": "at least {}", "above": "above {}", "maximum": "at most {}"}


class Settings(griffe.Extension):
    """Turns fields such as `mu: float = option(0.1, "Weight.", minimum=0)` into documentation."""

    def on_module_members(
        self, *, node: ast.AST | griffe.ObjectNode, mod: griffe.Module, **kwargs: Any
    ) -> None:
        """Adds the constants of assignments such as `A, B = "a", "b"`, which griffe passes over."""
        for statement in getattr(node, "body", ()):
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Tuple):
                for target in statement.targets:
                    if isinstance(target, ast.Tuple):
                        _add_constants(mod, target.elts, statement.value.elts)

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Renames the section `Example`, since only `Examples` is known to hold code."""
        if obj.docstring:
            value = re.sub(r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.M)
            obj.docstring.value = value

    def on_attribute_instance(
        self, *, node: ast.AST | griffe.ObjectNode, attr: griffe.Attribute, **kwargs: Any
    ) -> None:
        """Replaces the call by the default, and makes a docstring of its other arguments."""
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("registry."):
            # Packages with a registry export its methods as functions of their own.
            method = f"Registry.{ast.unparse(node.value).removeprefix('registry.')}"
            attr.docstring = griffe.Docstring(
                f"See [`{method}`][tff_pcdd.registry.{method}].", parent=attr
            )
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.value, ast.Call):
            return
        function = node.value.func
        name = getattr(function, "attr", getattr(function, "id", ""))
        arguments = node.value.args
        if name == "option" and len(arguments) >= 2:
            attr.value = ast.unparse(arguments[0])
            bounds = _bounds(node.value.keywords)
        elif name == "choice" and len(arguments) >= 3:
            attr.value = ast.unparse(arguments[1])
            bounds = ""
        elif name == "selection" and len(arguments) >= 2:
            attr.value = "()"
            bounds = ""
        else:
            return
        help_text = _text(arguments[2 if name == "choice" else 1])
        if attr.docstring is None and help_text:
            attr.docstring = griffe.Docstring(help_text + bounds, parent=attr)


def _add_constants(module: griffe.Module, targets: list[ast.expr], values: list[ast.expr]) -> None:
    for target, value in zip(targets, values, strict=False):
        if isinstance(target, ast.Name) and target.id not in module.members:
            module.set_member(target.id, griffe.Attribute(target.id, value=ast.unparse(value)))


def _bounds(keywords: list[ast.keyword]) -> str:
    """A sentence on the permitted values, empty where all are."""
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in keywords}
    bounds = [text.format(given[name]) for name, text in _BOUNDS.items() if name in given]
    return f" Bounds: {', '.join(bounds)}." if bounds else ""


def _text(node: ast.expr) -> str:
    """A string that is written out, else nothing."""
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return ""
    return value if isinstance(value, str) else ""

"""The public names of the package, read from its source without importing it.

The API reference is made from these lists, so a name is in it as soon as it is public.
"""

from __future__ import annotations

import ast
import dataclasses
import pathlib


@dataclasses.dataclass(frozen=True)
class Module:
    """A public module or package.

    Attributes:
        name: dotted, such as "tff_pcdd.data".
        names: its `__all__`; without one, the functions and classes that it defines.
        components: of a package, the registered classes in each of its modules that has any.
    """

    name: str
    names: tuple[str, ...]
    components: tuple[tuple[str, tuple[str, ...]], ...] = ()


def public_modules(package: pathlib.Path) -> list[Module]:
    """The packages that have public names, and the public modules directly in the outermost one.

    A module deeper inside is public through its package, which lists what it exports.

    Args:
        package: the directory of the outermost package.

    Raises:
        ValueError: an `__all__` is not written out as a list of strings.
    """
    modules = []
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        if any(part.startswith("_") and part != "__init__" for part in parts):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        if parts[-1] == "__init__":
            names = _exported(tree, path) or _defined(tree)
            module = Module(".".join(parts[:-1]), names, _components(path.parent))
        elif len(parts) == 2:
            module = Module(".".join(parts), _exported(tree, path) or _defined(tree))
        else:
            continue
        if module.names or module.components:
            modules.append(module)
    return modules


def _exported(tree: ast.Module, path: pathlib.Path) -> tuple[str, ...]:
    """The `__all__` of a module; empty without one."""
    for node in tree.body:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else []
        targets += node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            try:
                return tuple(sorted(ast.literal_eval(node.value)))
            except ValueError:
                raise ValueError(f"{path}: __all__ has to be a list of strings") from None
    return ()


def _defined(tree: ast.Module) -> tuple[str, ...]:
    """Public functions and classes that a module defines."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    names = [node.name for node in tree.body if isinstance(node, kinds)]
    return tuple(name for name in names if not name.startswith("_"))


def _components(package: pathlib.Path) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Registered classes by module, of the modules directly in a package."""
    found = []
    for path in sorted(package.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        classes = tuple(
            node.name
            for node in tree.body
            if isinstance(node, ast.ClassDef)
            and any(_is_register(decorator) for decorator in node.decorator_list)
        )
        if classes and not path.stem.startswith("_"):
            found.append((path.stem, classes))
    return tuple(found)


def _is_register(decorator: ast.expr) -> bool:
    """Whether a decorator is `register` or an attribute `.register`, called or not."""
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    return getattr(decorator, "attr", getattr(decorator, "id", "")) == "register"

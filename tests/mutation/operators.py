"""Mutants of a Python source: copies with one small change each.

    operator     change
    compare      < to <=, == to !=, is to is not, in to not in, and back
    arithmetic   + to -, * to /, ** to *, // to *, % to *, and back
    term         a + b, a - b, a * b and a / b to a; a + b and a * b to b
    logic        and to or, and back
    sign         -a and not a to a
    constant     a number plus one; a number other than 0 and 1 to 0; 2.0 to -2.0; True to False
    text         a string that something is compared with to another
    branch       the condition of an if or of a conditional expression, or an order, negated
    statement    a call whose value is not used, or an augmented assignment, to pass
    function     a function to its counterpart: sum to mean, maximum to minimum, zeros to ones, …
    unwrapped    stop_gradient(a), sqrt(a), square(a), l2_normalize(a, …), … to a
    swapped      where(c, a, b) to where(c, b, a)
    placement    a placement of variables to another

Not mutated: docstrings, annotations, names, decorators, help texts and messages (strings in
general, and everything in `raise`), `strict=…` of zip, and types of tensors.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
from collections.abc import Callable, Iterator

_COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}
_TERMS = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_COUNTERPARTS = {
    "reduce_sum": "reduce_mean",
    "reduce_mean": "reduce_sum",
    "reduce_any": "reduce_all",
    "reduce_all": "reduce_any",
    "maximum": "minimum",
    "minimum": "maximum",
    "max": "min",
    "min": "max",
    "logical_and": "logical_or",
    "logical_or": "logical_and",
    "zeros": "ones",
    "ones": "zeros",
    "zeros_like": "ones_like",
    "ones_like": "zeros_like",
}
_UNWRAPPED = {
    "stop_gradient",
    "sqrt",
    "rsqrt",
    "square",
    "abs",
    "exp",
    "log",
    "relu",
    "l2_normalize",
    "mask_logits",
    "reduce_mean",
    "reduce_sum",
    "sorted",
}
_PLACEMENTS = {
    "SHARED": "PERSONAL",
    "PERSONAL": "SHARED",
    "MIRRORED": "SHARED",
    "FIXED": "SHARED",
    "SCRATCH": "PERSONAL",
}
_SKIPPED_KEYWORDS = {"strict", "dtype", "output_type"}


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A changed source.

    Attributes:
        line: line of the change in the original source, from 1.
        operator: kind of change.
        before: the changed expression or statement as it was.
        after: as it is now.
        source: the whole changed source.
    """

    line: int
    operator: str
    before: str
    after: str
    source: str


def mutants(source: str) -> list[Mutant]:
    """All mutants of a source in the order of its lines."""
    tree = ast.parse(source)
    found: dict[str, Mutant] = {}
    for path, node in _sites(tree, ()):
        for operator, change in _changes(node):
            changed = copy.deepcopy(tree)
            mutated = change(_follow(changed, path))
            _replace(changed, path, mutated)
            ast.fix_missing_locations(changed)
            before, after = ast.unparse(node), ast.unparse(mutated)
            if before != after:
                text = ast.unparse(changed)
                found.setdefault(text, Mutant(node.lineno, operator, before, after, text))
    return sorted(found.values(), key=lambda mutant: mutant.line)


_Path = tuple[tuple[str, int | None], ...]


def _sites(node: ast.AST, path: _Path) -> Iterator[tuple[_Path, ast.AST]]:
    """All nodes that may be changed, with the way to them from the root."""
    if isinstance(node, (ast.expr, ast.stmt, ast.comprehension)) and hasattr(node, "lineno"):
        yield path, node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "bases", "type_params"):
            continue
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.AST) and not _skipped(child):
                step = (field, index if isinstance(value, list) else None)
                yield from _sites(child, (*path, step))


def _skipped(node: ast.AST) -> bool:
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    keyword = isinstance(node, ast.keyword) and node.arg in _SKIPPED_KEYWORDS
    return text or keyword or isinstance(node, (ast.Raise, ast.JoinedStr, ast.Import))


def _follow(node: ast.AST, path: _Path) -> ast.AST:
    for field, index in path:
        value = getattr(node, field)
        node = value if index is None else value[index]
    return node


def _replace(root: ast.AST, path: _Path, new: ast.AST) -> None:
    parent = _follow(root, path[:-1])
    field, index = path[-1]
    if index is None:
        setattr(parent, field, new)
    else:
        getattr(parent, field)[index] = new


def _name(function: ast.expr) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable[[ast.AST], ast.AST]]]:
    """The operators that apply to a node, as functions of a copy of it."""
    match node:
        case ast.Compare(ops=[operation]) if type(operation) in _COMPARISONS:
            yield "compare", _set(ops=[_COMPARISONS[type(operation)]()])
            if isinstance(operation, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                yield "branch", _negated
            if isinstance(node.comparators[0], ast.Constant):
                yield from _text(node.comparators[0], lambda n, c: _set(comparators=[c])(n))
        case ast.BinOp(op=operation):
            if type(operation) in _ARITHMETIC:
                yield "arithmetic", _set(op=_ARITHMETIC[type(operation)]())
            if isinstance(operation, _TERMS):
                yield "term", lambda n: n.left
                if isinstance(operation, ast.Add | ast.Mult):
                    yield "term", lambda n: n.right
        case ast.BoolOp(op=operation):
            yield "logic", _set(op=ast.Or() if isinstance(operation, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.USub() | ast.Not()):
            yield "sign", lambda n: n.operand
        case ast.Constant(value=bool(value)):
            yield "constant", _set(value=not value)
        case ast.Constant(value=int(value) | float(value)):
            yield "constant", _set(value=value + 1)
            if value not in (0, 1):
                yield "constant", _set(value=0)
            # The negative of a whole number is often the same axis or place.
            if value and isinstance(value, float):
                yield "constant", _set(value=-value)
        case ast.If(test=ast.Compare() | ast.UnaryOp()) | ast.IfExp(test=ast.Compare()):
            pass  # the condition itself is mutated
        case ast.If() | ast.IfExp():
            yield "branch", lambda n: _set(test=_negated(n.test))(n)
        case ast.AugAssign(op=operation):
            yield "statement", lambda n: ast.Pass(lineno=n.lineno)
            if type(operation) in _ARITHMETIC:
                yield "arithmetic", _set(op=_ARITHMETIC[type(operation)]())
        case ast.Expr(value=ast.Call()):
            yield "statement", lambda n: ast.Pass(lineno=n.lineno)
        case ast.Attribute(value=ast.Name(id="Placement"), attr=attribute):
            yield "placement", _set(attr=_PLACEMENTS[attribute])
        case ast.Call(func=function, args=arguments):
            name = _name(function)
            if name in _COUNTERPARTS:
                yield "function", lambda n: _set(func=_renamed(n.func, _COUNTERPARTS[name]))(n)
            if name in _UNWRAPPED and arguments:
                yield "unwrapped", lambda n: n.args[0]
            if name == "where" and len(arguments) == 3:
                yield "swapped", lambda n: _set(args=[n.args[0], n.args[2], n.args[1]])(n)


def _text(constant, place):
    if isinstance(constant.value, str):
        yield "text", lambda n: place(n, ast.Constant(constant.value + "?"))


def _set(**fields) -> Callable[[ast.AST], ast.AST]:
    """Changes fields of a node."""

    def change(node):
        for field, value in fields.items():
            setattr(node, field, value)
        return node

    return change


def _negated(condition: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), condition)


def _renamed(function: ast.expr, name: str) -> ast.expr:
    field = "attr" if isinstance(function, ast.Attribute) else "id"
    return _set(**{field: name})(function)

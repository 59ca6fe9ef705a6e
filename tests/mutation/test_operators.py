"""Mutants of small sources."""

import pytest

from tests.mutation.operators import mutants


def changes(source):
    return [(mutant.operator, mutant.after) for mutant in mutants(source)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", [("compare", "a <= b"), ("branch", "not a < b")]),
        ("a == 'b'", [("compare", "a != 'b'"), ("text", "a == 'b?'")]),
        ("a + b", [("arithmetic", "a - b"), ("term", "a"), ("term", "b")]),
        ("a - b", [("arithmetic", "a + b"), ("term", "a")]),
        ("a and b", [("logic", "a or b")]),
        ("-a", [("sign", "a")]),
        ("a[1]", [("constant", "2")]),
        ("f(2.0)", [("statement", "pass"), ("constant", "3.0"), ("constant", "0"),
                    ("constant", "-2.0")]),
        ("a = f(training=True)", [("constant", "False")]),
        ("a = b if c else d", [("branch", "b if not c else d")]),
        ("a += b", [("statement", "pass"), ("arithmetic", "a -= b")]),
        ("a = tf.stop_gradient(b)", [("unwrapped", "b")]),
        ("a = tf.where(b, c, d)", [("swapped", "tf.where(b, d, c)")]),
        ("a = tf.maximum(b, c)", [("function", "tf.minimum(b, c)")]),
        ("a = Placement.FIXED", [("placement", "Placement.SHARED")]),
    ],
)  # fmt: skip
def test_changes(source, expected):
    assert changes(source) == expected


def test_what_is_not_mutated():
    source = '''
"""A docstring."""
@decorator(1)
def function(a: Literal[1] = None) -> Literal[2]:
    """Another."""
    if a is None:
        raise ValueError(f"{a + 1}")
    return zip(a, strict=True)
'''
    assert changes(source) == [("compare", "a is not None")]


def test_the_rest_of_the_source_stays():
    (first, *_) = mutants("a = b + c\nd = b + c\n")
    assert (first.line, first.source) == (1, "a = b - c\nd = b + c")

"""Markdown tables: padding, alignment and what texts of others must not break."""

import pytest

from tff_pcdd import tables


def test_columns_are_padded_and_numbers_stand_to_the_right():
    lines = [["client", "GA"], ["a", "9.50"], ["north", "10.25"]]
    assert tables.table(lines, right={1}).splitlines() == [
        "| client |    GA |",
        "|--------|------:|",
        "| a      |  9.50 |",
        "| north  | 10.25 |",
    ]
    assert tables.table([["only", ""]]) == "| only |  |\n|------|--|"


def test_a_line_with_a_cell_too_many_is_an_error():
    with pytest.raises(ValueError, match="longer than"):
        tables.table([["a", "b"], ["1", "2", "3"]])


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a|b", r"a\|b"), ("two\nlines", "two lines"), ("  wide \t name ", "wide name")],
)
def test_texts_of_others_stay_in_their_cell(text, expected):
    assert tables.escape(text) == expected

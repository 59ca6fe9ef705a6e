"""Declared options: bounds, conditions, and messages that name the flag and its value."""

import dataclasses
import math

import pytest

from tff_pcdd.options import OptionError, check_options, option, option_fields, settle_options


@dataclasses.dataclass(frozen=True)
class Settings:
    kind: str = option("a", "Kind.", choices=("a", "b", "c"))
    count: int = option(3, "Count.", minimum=1)
    share: float = option(0.5, "Share.", above=0, maximum=1)
    on: bool = option(False, "On.")
    path: str | None = option(None, "Path.", type=str)
    limit: int | None = option(None, "Limit.", type=int, minimum=2)
    extra: int | None = option(7, "Extra.", minimum=1, only={"kind": ("b", "c")})
    both: int | None = option(9, "Both.", only={"kind": ("b",), "path": ("x",)})
    plain: int = 4

    def __post_init__(self):
        check_options(self, "my_")
        settle_options(self)


def test_only_declared_options_are_options():
    names = [field.name for field in option_fields(Settings)]
    assert names == ["kind", "count", "share", "on", "path", "limit", "extra", "both"]


def test_metadata_says_what_flags_need():
    metadata = {field.name: field.metadata for field in option_fields(Settings)}
    assert metadata["kind"]["choices"] == ("a", "b", "c")
    assert metadata["count"]["choices"] is None
    assert metadata["limit"]["type"] is int
    assert metadata["share"]["type"] is float
    assert metadata["on"]["type"] is bool
    assert metadata["extra"]["default"] == 7
    assert metadata["extra"]["help"] == "Extra."


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"count": 1},
        {"share": 1},
        {"share": 1e-9},
        {"on": True, "path": "", "limit": 2},
        {"kind": "c", "extra": 1},
    ],
)
def test_accepted(values):
    settings = Settings(**values)
    assert {name: getattr(settings, name) for name in values} == values


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "d"}, "--my_kind=d: choose one of a, b, c"),
        ({"count": 0}, "--my_count=0: must be at least 1"),
        ({"share": 0.0}, "--my_share=0.0: must be greater than 0"),
        ({"share": 1.5}, "--my_share=1.5: must be at most 1"),
        ({"share": math.nan}, "--my_share=nan: must be a finite number"),
        ({"share": math.inf}, "--my_share=inf: must be a finite number"),
        ({"limit": 1}, "--my_limit=1: must be at least 2"),
        ({"count": 2.5}, "--my_count=2.5: must be a whole number"),
        ({"count": "2"}, "--my_count=2: must be a whole number"),
        ({"count": True}, "--my_count=True: must be a whole number"),
        ({"share": "much"}, "--my_share=much: must be a number"),
        ({"share": False}, "--my_share=False: must be a number"),
        ({"on": 1}, "--my_on=1: must be true or false"),
        ({"on": "yes"}, "--my_on=yes: must be true or false"),
        ({"path": 3}, "--my_path=3: must be a string"),
        ({"extra": 2}, "--extra=2: applies only with --kind=b|c"),
        ({"kind": "b", "both": 2}, "--both=2: applies only with --path=x"),
        ({"both": 2}, "--both=2: applies only with --kind=b and --path=x"),
    ],
)
def test_refused(values, message):
    with pytest.raises(OptionError) as caught:
        Settings(**values)
    assert str(caught.value) == message
    assert isinstance(caught.value, ValueError)


def test_conditional_options_have_their_default_where_they_apply():
    assert Settings().extra is None
    assert Settings(kind="b").extra == 7
    assert Settings(kind="b").both is None
    assert Settings(kind="b", path="x").both == 9
    assert Settings(kind="b", path="x", both=1).both == 1

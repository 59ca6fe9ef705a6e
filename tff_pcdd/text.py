"""Numbers and names as people read them."""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from tff_pcdd.errors import shown

NO_VALUE = "–"

# The most characters of a name of a client or a class that are shown, and that leave room in a
# picture.
_NAME, _NAME_IN_PICTURE = 60, 28


def cut(text: str, most: int) -> str:
    """A text of at most so many characters.

    Example:
        >>> cut("Charité", 7), cut("Charité", 5)
        ('Charité', 'Char…')
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def name_of(value: Any) -> str:
    """The name of a client or a class as it is shown: on one line, not long, and never empty.

    Example:
        >>> name_of("St. Mary"), name_of(" "), name_of("a\\nb")
        ('St. Mary', "' '", 'a\\\\nb')
    """
    text = str(value)
    return shown(text, _NAME) if text.strip() else repr(text)


def in_natural_order(names: Iterable[str]) -> list[str]:
    """Names in alphabetical order, but those that differ in a whole number by that number.

    Example:
        >>> in_natural_order(["ward 10", "ward 2", "10", "2", "ward"])
        ['2', '10', 'ward', 'ward 2', 'ward 10']
    """

    def place(name: str) -> tuple[list[Any], str]:
        # Texts and numbers take turns; a number may have too many digits for `int`.
        parts: list[Any] = re.split("([0-9]+)", name)
        digits = [part.lstrip("0") for part in parts[1::2]]
        parts[1::2] = [(len(number), number) for number in digits]
        return parts, name

    return sorted(names, key=place)


def one_line(text: str) -> str:
    """A text with its line breaks, of whatever kind, as escapes.

    Example:
        >>> print(one_line("it's\\nhere"))
        it's\\nhere
    """
    return "".join(c if len(f"{c}.".splitlines()) == 1 else repr(c)[1:-1] for c in text)


def in_picture(name: object) -> str:
    """A name as matplotlib shows it: short, and without what it takes for a formula.

    matplotlib also leaves names with an underscore at their beginning out of legends.

    Example:
        >>> in_picture("$50k to $100k"), in_picture("_other")
        ('\\\\$50k to \\\\$100k', ' _other')
    """
    shown = cut(str(name), _NAME_IN_PICTURE).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def percent(value: float | None) -> str:
    """An accuracy with one digit after the point; a dash if there is none."""
    return NO_VALUE if value is None else f"{value:.1f}"


def signed(value: float | None) -> str:
    """A difference with its sign.

    Example:
        >>> signed(-2.04), signed(0.01), signed(None)
        ('−2.0', '0.0', '–')
    """
    if value is None:
        return NO_VALUE
    text = f"{value:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", "−")


def whole(value: float | None) -> str:
    """A whole number with separators."""
    return NO_VALUE if value is None else f"{round(value):,}"


def size(value: float | None) -> str:
    """A number of bytes; 1 kB has 1,000 bytes.

    Example:
        >>> size(999), size(177_704), size(8_530_000)
        ('999 B', '178 kB', '8.53 MB')
    """
    if value is None:
        return NO_VALUE
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= 0.9995 * factor:
            return f"{_three_digits(value / factor)} {unit}"
    return f"{value:.0f} B"


def seconds(value: float | None) -> str:
    """A duration.

    Example:
        >>> seconds(0.1476), seconds(75), seconds(120), seconds(7350), seconds(3605)
        ('0.148 s', '1 min 15 s', '2 min', '2 h 2 min', '1 h')
    """
    if value is None:
        return NO_VALUE
    if value < 60:
        return f"{_three_digits(value)} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (0 if hours else rest, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number)


def _three_digits(value: float) -> str:
    """At least three digits, without an exponent."""
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


def plural(number: int, noun: str) -> str:
    """A number with its noun.

    Example:
        >>> plural(1, "client"), plural(1200, "class")
        ('1 client', '1,200 classes')
    """
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"


def listed(names: Sequence[str], most: int = 6) -> str:
    """Names, separated by commas; of long lists only the first, unless a single one would be left.

    Example:
        >>> listed(["a", "b", "c", "d"], most=2), listed(["a", "b", "c"], most=2)
        ('a, b and 2 more', 'a, b, c')
    """
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def separated(text: str | None) -> list[str]:
    """The names in a setting, separated by commas; one with a comma stands in double quotes.

    Example:
        >>> separated('age, "weight, in kg"')
        ['age', 'weight, in kg']
    """
    try:
        (names,) = list(csv.reader([text or ""], skipinitialspace=True)) or [[]]
    # Line breaks, and names that are longer than cells of a csv file may be.
    except (csv.Error, ValueError):
        names = (text or "").split(",")
    return [composed(name.strip()) for name in names]


def quoted(*names: str) -> str:
    """Names as `separated` reads them.

    Example:
        >>> quoted("age", "weight, in kg")
        'age,"weight, in kg"'
    """
    return ",".join(
        '"' + name.replace('"', '""') + '"' if set(',"') & set(name) else name for name in names
    )


def composed(name: str) -> str:
    """A name in which an ä is the same whether a program stores one character or two."""
    return unicodedata.normalize("NFC", name)

"""Draws docs/images/house.svg: the rooms of the package, and what each of them is.

    python -m tests.house

writes the picture from the layers of tests/test_architecture.py and the first lines of docstrings;
tests/test_architecture.py compares it with the one in docs/images.
"""

from __future__ import annotations

import ast
import html
import textwrap

from tests import test_architecture as architecture

PICTURE = architecture._PACKAGE.parent / "docs" / "images" / "house.svg"

_WIDTH, _GAP, _LINE = 1000, 10, 15
# Characters that fit beside each other in one pixel of the two fonts.
_PER_PIXEL = 1 / 6.4


def draw() -> str:
    """The picture as the text of an SVG file; a room's tooltip names the rooms that it uses."""
    shapes, y = [], _GAP
    for rank, layer in enumerate(architecture._LAYERS):
        parts = sorted(layer - {"_version"})
        width = (_WIDTH - _GAP * (len(parts) + 1)) / len(parts)
        texts = [textwrap.wrap(_purpose(part), int((width - 20) * _PER_PIXEL)) for part in parts]
        height = 28 + _LINE * max(map(len, texts))
        for index, (part, lines) in enumerate(zip(parts, texts, strict=True)):
            x = _GAP + index * (width + _GAP)
            shapes.append(_room(part, lines, x, y, width, height, dark=rank % 2 == 0))
        y += height + _GAP
    label = "The rooms of tff_pcdd: each imports only from rooms below it"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" role="img"'
            f' aria-label="{label}" font-family="sans-serif" font-size="12">',
            *shapes,
            "</svg>",
            "",
        ]
    )


def _room(part: str, lines: list[str], x: float, y: int, width: float, height: int, *, dark: bool):
    used = ", ".join(sorted(_used(part))) or "nothing of the package"
    color = "#dbe7f3" if dark else "#eef3f8"
    rows = "".join(
        f'<tspan x="{x + 10:.0f}" dy="{_LINE}">{html.escape(line)}</tspan>' for line in lines
    )
    return (
        f'<g><title>{part} uses: {used}</title><rect x="{x:.0f}" y="{y}" width="{width:.0f}"'
        f' height="{height}" rx="6" fill="{color}" stroke="#7d93a8"/><text x="{x + 10:.0f}"'
        f' y="{y + 18}" fill="#1b2733"><tspan font-weight="bold" font-size="14">{part}</tspan>'
        f"{rows}</text></g>"
    )


def _purpose(part: str) -> str:
    """The first sentence of a room's docstring."""
    text = ast.get_docstring(architecture._tree(part)) or ""
    first = " ".join(text.partition("\n\n")[0].split())
    return first.replace("`", "").rstrip(".")


def _used(part: str) -> set[str]:
    found = {
        architecture._part(own)
        for module in architecture._modules()
        if architecture._part(module) == part
        for each in architecture._imports(module)
        if each.when != "typing" and (own := architecture._own(each.target))
        if (module, own) not in architecture._SHOWN_FROM_ABOVE
    }
    return found - {part, "_version"}


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")

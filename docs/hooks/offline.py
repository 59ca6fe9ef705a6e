"""Keeps pages from fetching anything when they are opened.

The notebooks show the badge of Colab, which is a picture of another site. The theme asks GitHub for
the number of stars of the repository that mkdocs.yml states.
"""

from __future__ import annotations

import re
from typing import Any

_FOREIGN_PICTURE = re.compile(r"!\[([^\]]*)\]\(https?://[^)\s]+\)")
_ASKS_GITHUB = ' data-md-component="source"'


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replaces pictures of other sites by their text."""
    return _FOREIGN_PICTURE.sub(r"\1", markdown)


def on_post_page(output: str, **_: Any) -> str:
    """Leaves the link to the repository, without what the theme adds to it."""
    return output.replace(_ASKS_GITHUB, "")


def on_post_template(output_content: str, **_: Any) -> str:
    """The same for the page that a server shows instead of a missing one."""
    return on_post_page(output_content)

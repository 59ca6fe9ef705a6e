"""The hook that keeps pages of the site from fetching anything."""

import importlib.util
import pathlib

import nbformat
import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def hook():
    path = _ROOT / "docs" / "hooks" / "offline.py"
    spec = importlib.util.spec_from_file_location("offline", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", sorted(_ROOT.glob("colab/*.ipynb")), ids=lambda path: path.stem)
def test_badges_become_links(hook, path):
    text = nbformat.read(path, as_version=4).cells[0].source
    badge, end = text.index("[![Open in Colab]("), text.index(")](https://colab.")
    shown = text[:badge] + "[Open in Colab" + text[end + 1 :]
    assert hook.on_page_markdown(text, page=None, config=None, files=None) == shown


def test_own_pictures_stay(hook):
    text = "![Accuracy](images/comparison.png) [a link](https://example.org/picture.png)"
    assert hook.on_page_markdown(text) == text


def test_github_is_not_asked(hook):
    link = '<a href="https://github.com/a/b" title="Go to repository" class="md-source"{}>'
    asking = link.format(' data-md-component="source"')
    assert hook.on_post_page(asking, page=None, config=None) == link.format("")
    shown = hook.on_post_template(asking, template_name="404.html", config=None)
    assert shown == link.format("")

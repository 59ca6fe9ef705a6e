"""The documentation site builds without a warning and asks for nothing from the network."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import time

import pytest

from tests.report import browser

pytestmark = pytest.mark.slow

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_MKDOCS = _ROOT / ".venv-docs" / "bin" / "mkdocs"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site."""
    if not _MKDOCS.exists():
        pytest.skip("needs `make install-docs`")
    directory = tmp_path_factory.mktemp("site")
    command = [_MKDOCS, "build", "--strict", f"--site-dir={directory}"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return directory


def test_pages_are_there(site):
    for notebook in (_ROOT / "colab").glob("*.ipynb"):
        assert (site / "tutorials" / f"{notebook.stem}.html").is_file()
    for page in ("index", "glossary", "changelog", "api/tff_pcdd.data", "how-to/own_data"):
        assert (site / f"{page}.html").is_file()


def test_api_shows_settings_and_examples(site):
    page = (site / "api" / "tff_pcdd.methods.html").read_text(encoding="utf-8")
    assert 'id="tff_pcdd.methods.fedprox.FedProx.mu"' in page
    page = (site / "api" / "tff_pcdd.data.html").read_text(encoding="utf-8")
    assert "&gt;&gt;&gt;" in page


def test_nothing_is_fetched(site):
    # Scripts, styles and pictures; a link in the text to another site is fetched by readers only.
    fetched = re.compile(r'<(?:script|img|link|source)\b[^>]*?(?:src|href)="(?:https?:)?//[^"]+"')
    for page in site.rglob("*.html"):
        assert not fetched.search(page.read_text(encoding="utf-8")), page


def test_pages_are_small(site):
    for page in site.rglob("*.html"):
        assert page.stat().st_size < 600_000, page


def test_methods_have_their_papers(site):
    page = (site / "methods.html").read_text(encoding="utf-8")
    link = r'<a href="https://arxiv.org/search/[^"]+">'
    rows = re.findall(rf"<td>([^<]+)</td>\s*<td>{link}([^<]+)", page)
    assert ("FedProx", "Federated Optimization in Heterogeneous Networks") in rows
    assert len(rows) >= 35


def test_pictures_of_tutorials_are_named(site):
    for page in (site / "tutorials").glob("*.html"):
        assert 'alt="png"' not in page.read_text(encoding="utf-8"), page


def test_values_stay_beside_their_deviation(site):
    page = (site / "comparison" / "digits_p10c2" / "index.html").read_text(encoding="utf-8")
    assert "\u00a0±\u00a0" in page
    assert not re.search(r"<td[^>]*>[^<]* ± ", page)


@pytest.mark.skipif(browser.PROGRAM is None, reason="no Chromium: the search was not tried")
def test_the_search_works_from_the_file_system(site):
    box = "document.querySelector('[data-md-component=search-query]')"
    found = "[...document.querySelectorAll('.md-search-result__item h1')].map(e => e.textContent)"
    with browser.started() as started:
        page = started.open(site / "index.html")
        page.evaluate(f"{box}.focus()")
        page.evaluate(f"{box}.value = 'privacy'; {box}.dispatchEvent(new Event('keyup'))")
        while not (titles := page.evaluate(found)):
            time.sleep(0.1)
        assert titles[0] == "Privacy, robustness and compression"
        assert page.messages == []
        assert all(address.startswith(("file:", "data:")) for address in page.requests)

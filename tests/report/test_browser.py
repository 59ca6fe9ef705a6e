"""The pages in a real browser; without one, these tests are skipped and say so."""

import csv
import io
import re
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import numpy as np
import pytest

from tests.report import browser
from tests.report.directories import make_comparison, make_run
from tests.report.test_sweep_page import make_method_sweep, make_sweep
from tff_pcdd.report import write_index, write_report

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        browser.PROGRAM is None, reason="no Chromium: the reports were not opened in a browser"
    ),
]

_NAMES = ("Charité Campus West", "<b>St. Mary</b>", "a name " * 8, "royal", "north", "south")


@pytest.fixture(scope="module")
def chromium():
    with browser.started() as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The reports of a run, of a large run, of a comparison, of a sweep, and of all of them."""
    root = tmp_path_factory.mktemp("reports")
    make_run(root / "run", clients=_NAMES, over_local=-1.0, algorithm="fedgela")
    clients = [f"client {i}" for i in range(50)]
    make_run(root / "large", clients=clients, classes=[f"class {i}" for i in range(100)])
    make_comparison(root / "comparison", clients=_NAMES, alone=True, data_seed=0)
    found = {name: write_report(run_dir=root / name).path for name in ("run", "large")}
    (root / "sweep").mkdir()
    make_sweep(root / "sweep")
    found["sweep"] = write_report(sweep_dir=root / "sweep").path
    found["comparison"] = write_report(comparison_dir=root / "comparison").path
    return found | {"index": write_index(root).path}


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("name", ["run", "large", "comparison", "sweep", "index"])
def test_nothing_is_wider_than_the_window(chromium, pages, name, width):
    page = chromium.open(pages[name], width)
    inside, outside = page.evaluate(
        "[document.documentElement.clientWidth, document.documentElement.scrollWidth]"
    )
    assert inside <= width
    assert outside <= inside
    # Nothing in a table that may be wider is out of reach: it scrolls inside its box.
    assert page.evaluate(
        "[...document.querySelectorAll('table, img')].every(e => e.closest('.wide'))"
    )
    # Text that is smaller than 11 pixels cannot be read.
    assert page.evaluate(
        "Math.min(...[...document.querySelectorAll('body *')].filter(e => e.innerText)"
        ".map(e => parseFloat(getComputedStyle(e).fontSize)))"
    ) >= 11  # fmt: skip


@pytest.mark.parametrize("width", [400, 700, 1400])
@pytest.mark.parametrize("name", ["run", "comparison", "sweep"])
def test_no_line_ends_within_a_flag(chromium, pages, name, width):
    """Copied by hand, a flag with a line break would be two words."""
    page = chromium.open(pages[name], width)
    tops = page.evaluate(
        "[...document.querySelectorAll('main code')].filter(e => e.innerText.includes('--'))"
        ".flatMap(e => e.matches('.flag') ? [e] : [...e.children])"
        ".map(e => { const range = document.createRange(); range.selectNodeContents(e);"
        "return [e.innerText, new Set([...range.getClientRects()].map(r => r.top)).size]; })"
    )
    assert len(tops) > 3
    assert [text for text, lines in tops if lines > 1] == []
    # Selected and copied, the command is one line that a shell takes.
    command = page.evaluate(
        "(() => { const s = getSelection(); s.selectAllChildren(document.querySelector('pre'));"
        "return s.toString(); })()"
    )
    assert command.strip() == page.evaluate("document.querySelector('pre').textContent")


@pytest.mark.parametrize("width", [600, 1200, 1600])
def test_pictures_of_sweeps_shrink_to_the_page(chromium, tmp_path, width):
    """Nothing is cut at the right; on a telephone, a picture of 60 rem can be moved."""
    make_method_sweep(tmp_path)
    plt.imsave(tmp_path / "sweep.png", np.zeros((400, 1500, 3)))
    page = chromium.open(write_report(sweep_dir=tmp_path).path, width)
    page_width, *size = page.evaluate(
        "(() => { const r = document.querySelector('.wide > img').getBoundingClientRect();"
        "return [document.documentElement.clientWidth, r.width, r.height]; })()"
    )
    # The page has a padding of 20 pixels at both sides and is at most 1216 pixels wide.
    shown = max(min(page_width, 1216) - 40, 960)
    np.testing.assert_allclose(size, (shown, shown * 400 / 1500), atol=0.6)


def test_a_table_that_goes_on_has_a_shade_at_its_edge(chromium, pages, tmp_path):
    """As long as there is more to the right, and only then."""
    page, box = chromium.open(pages["comparison"], 700), "document.querySelector('.wide')"
    assert page.evaluate(f"{box}.scrollWidth > {box}.clientWidth")

    def edge():
        """The color of the page, and those along the upper right edge of the box."""
        page.picture(tmp_path / "page.png")
        right, top = page.evaluate(
            f"(() => {{ const r = {box}.getBoundingClientRect();"
            "return [r.right + scrollX, r.top + scrollY]; })()"
        )
        pixels = plt.imread(tmp_path / "page.png")[..., :3]
        return pixels[2, 2], pixels[round(top) + 3, round(right) - 30 : round(right) - 1]

    white, shaded = edge()
    brightness = shaded.mean(axis=1)
    assert brightness[-1] < 0.85 < 0.99 < white.mean()
    assert np.all(np.diff(brightness) <= 0.01)
    page.evaluate(f"{box}.scrollLeft = 10000")
    white, plain = edge()
    np.testing.assert_array_equal(plain, np.broadcast_to(white, plain.shape))
    page.resize(1400, 900)
    page.evaluate(f"{box}.style.width = {box}.scrollWidth + 100 + 'px'")
    white, plain = edge()
    np.testing.assert_array_equal(plain, np.broadcast_to(white, plain.shape))


@pytest.mark.parametrize("name", ["run", "large", "comparison", "sweep", "index"])
def test_nothing_is_complained_about_or_fetched(chromium, pages, name):
    page = chromium.open(pages[name])
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    assert page.messages == []
    assert {address for address in page.requests if not address.startswith("data:")} == {
        pages[name].as_uri()
    }


def column(page, number):
    """The texts of a column of the table of clients, from top to bottom."""
    return page.evaluate(
        "[...document.querySelector('#clients ~ .wide table').tBodies[0].rows]"
        f".map(row => (row.cells[{number}].querySelector('bdi') ?? row.cells[{number}]).innerText)"
    )


def headings(page):
    return page.evaluate(
        "[...document.querySelectorAll('#clients ~ .wide table thead th')]"
        ".map(cell => [cell.innerText.replace(/ [▲▼]/, ''), cell.getAttribute('aria-sort')])"
    )


def test_tables_sort_by_click(chromium, pages):
    page = chromium.open(pages["run"])
    titles = [title for title, _ in headings(page)]
    lowest_first = [float(text) for text in column(page, titles.index("PA"))]
    assert lowest_first == sorted(lowest_first)
    assert headings(page)[titles.index("PA")] == ["PA", "ascending"]

    train = titles.index("train")
    page.click(f"#clients ~ .wide thead th:nth-child({train + 1}) button")
    counts = [int(text) for text in column(page, train)]
    assert counts == sorted(counts)
    assert headings(page)[train] == ["train", "ascending"]
    assert headings(page)[titles.index("PA")] == ["PA", None]
    page.click(f"#clients ~ .wide thead th:nth-child({train + 1}) button")
    assert [int(text) for text in column(page, train)] == counts[::-1]

    page.click("#clients ~ .wide thead th:nth-child(1) button")
    names = column(page, 0)
    assert sorted(names) == sorted(name.strip() for name in _NAMES)
    assert names.index("north") < names.index("royal") < names.index("south")
    assert page.messages == []


def test_tables_sort_by_keyboard(chromium, pages):
    page = chromium.open(pages["run"])
    page.evaluate("document.querySelector('#clients ~ .wide').focus()")
    # The box that scrolls, then the headings: client, train, test.
    for _ in range(3):
        page.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "test"
    page.press("Enter")
    titles = [title for title, _ in headings(page)]
    counts = [int(text) for text in column(page, titles.index("test"))]
    assert counts == sorted(counts)
    page.press("Enter")
    assert [int(text) for text in column(page, titles.index("test"))] == counts[::-1]


def test_values_that_are_missing_stay_last(chromium, pages, tmp_path):
    make_run(tmp_path, clients=_NAMES)
    path = tmp_path / "clients.csv"
    lines = path.read_text().splitlines()
    cells = lines[3].split(",")
    cells[5] = ""
    lines[3] = ",".join(cells)
    path.write_text("\n".join(lines) + "\n")
    page = chromium.open(write_report(run_dir=tmp_path).path)
    titles = [title for title, _ in headings(page)]
    place = titles.index("PA")
    for _ in range(2):
        page.click(f"#clients ~ .wide thead th:nth-child({place + 1}) button")
        assert column(page, place)[-1] == "–"


def test_long_tables_can_be_filtered(chromium, pages):
    page = chromium.open(pages["large"])
    rows = "[...document.querySelector('#clients ~ .wide table').tBodies[0].rows]"
    shown = (
        f"{rows}.filter(row => row.offsetHeight).map(row => row.cells[0].innerText.split('\\n')[0])"
    )
    assert len(page.evaluate(shown)) == 50
    page.evaluate(
        "(() => { const field = document.querySelector('#clients ~ .filter input');"
        "field.value = 'Client 4'; field.dispatchEvent(new Event('input')); })()"
    )
    assert sorted(page.evaluate(shown)) == sorted(
        ["client 4", *(f"client 4{n}" for n in range(10))]
    )
    # All rows are printed.
    page.call("Emulation.setEmulatedMedia", media="print")
    assert len(page.evaluate(shown)) == 50
    short = chromium.open(pages["run"])
    assert short.evaluate("document.querySelectorAll('.filter').length") == 0


def test_a_matrix_is_chosen(chromium, pages):
    page = chromium.open(pages["run"])

    def shown():
        return page.evaluate(
            "[...document.querySelectorAll('.choosable')].filter(part => part.offsetHeight)"
            ".map(part => part.querySelector('h3 bdi').innerText)"
        )

    assert shown() == ["Global model, whole test set"]
    page.evaluate(
        "(() => { const select = document.querySelector('select'); select.selectedIndex = 2;"
        "select.dispatchEvent(new Event('change')); })()"
    )
    assert shown() == ["<b>St. Mary</b>"]


def test_without_scripts_everything_is_shown(chromium, pages):
    page = chromium.open(pages["run"])
    page.reload_without_scripts()
    assert page.evaluate("document.querySelectorAll('th button').length") == 0
    assert page.evaluate("document.querySelector('.choice').offsetHeight") == 0
    assert page.evaluate(
        "[...document.querySelectorAll('.choosable')].every(part => part.offsetHeight)"
    )


def test_a_page_can_be_printed(chromium, pages):
    page = chromium.open(pages["run"])
    printed = page.pdf()
    assert printed.startswith(b"%PDF")
    assert len(printed) > 10_000
    page.call("Emulation.setEmulatedMedia", media="print")
    assert page.evaluate("document.querySelector('nav').offsetHeight") == 0


def test_defaults_are_not_printed(chromium, pages):
    page = chromium.open(pages["run"])
    page.call("Emulation.setEmulatedMedia", media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.querySelector('.defaults').offsetHeight") == 0
    opened = "[...document.querySelectorAll('details:not(.defaults)')].every(part => part.open)"
    assert page.evaluate(opened)


def test_a_dark_page_has_dark_boxes_and_tables(chromium, pages):
    page = chromium.open(pages["run"])
    colors = (
        "[...document.querySelectorAll('body, .findings, .pinned tbody th, .command')]"
        ".map(e => getComputedStyle(e).backgroundColor)"
    )
    light = {*page.evaluate(colors)}
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.call("Emulation.setEmulatedMedia", features=features)
    dark = {*page.evaluate(colors)}
    assert not light & dark
    brightest = max(int(part) for color in dark for part in re.findall(r"\d+", color))
    assert brightest < 80


def test_the_picture_of_a_sweep_is_dark_on_a_dark_page(chromium, tmp_path):
    """A white picture on a dark page is shown with the page's own brightness."""
    make_sweep(tmp_path)
    plt.imsave(tmp_path / "sweep.png", np.ones((20, 20)), cmap="gray", vmin=0, vmax=1)
    page = chromium.open(write_report(sweep_dir=tmp_path).path)
    shown = "getComputedStyle(document.querySelector('.wide > img')).filter"
    assert page.evaluate(shown) == "none"
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.call("Emulation.setEmulatedMedia", features=features)
    assert page.evaluate(shown) == "invert(1) hue-rotate(180deg)"


def legend(page):
    """Names and values below the first chart."""
    return dict(
        page.evaluate(
            "[...document.querySelectorAll('.chart')[0].querySelectorAll('.legend li')]"
            ".map(e => ['bdi', '.number'].map(part => e.querySelector(part).textContent))"
        )
    )


@pytest.fixture(scope="module")
def measured(pages):
    """Rounds and GA of the run, from its metrics.csv."""
    with (pages["run"].parent / "metrics.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    return {row["round"]: float(row["ga"]) for row in rows if row["ga"]}


def test_the_legend_shows_the_values_beside_the_pointer(chromium, pages, measured):
    page = chromium.open(pages["run"])
    first, *_, last = (f"{value:.1f}" for value in measured.values())
    [name] = [key for key, value in legend(page).items() if key.startswith("GA")]
    assert legend(page)[name] == last
    page.hover(".chart .plot > svg", 0.01)
    assert legend(page)[name] == first
    assert page.evaluate("document.querySelector('.round').textContent") == (
        f"round {next(iter(measured))}"
    )
    page.hover("h1")
    assert legend(page)[name] == last


def test_the_values_are_reached_by_keyboard(chromium, pages, measured):
    page = chromium.open(pages["run"])
    page.evaluate("document.querySelector('.chart .plot').focus()")
    for _ in range(2):
        page.press("ArrowLeft")
    [name] = [key for key in legend(page) if key.startswith("GA")]
    assert legend(page)[name] == f"{[*measured.values()][-2]:.1f}"


def saved(page, label):
    """The text of the file that a button saves."""
    page.evaluate(
        "URL.createObjectURL = blob => { blob.text().then(text => { window.text = text; });"
        " return '#'; }"
    )
    page.click(f"button[aria-label='{label}']")
    while (text := page.evaluate("window.text")) is None:
        pass
    return text


def test_a_chart_is_saved_as_a_table_and_as_a_picture(chromium, pages, measured):
    page = chromium.open(pages["run"])
    rows = [*csv.DictReader(io.StringIO(saved(page, "Save Accuracy (%) as CSV")))]
    [name] = [key for key in rows[0] if key.startswith("GA")]
    assert {row["round"]: float(row[name]) for row in rows} == pytest.approx(measured, abs=0.05)
    page = chromium.open(pages["run"])
    picture = ElementTree.fromstring(saved(page, "Save Accuracy (%) as SVG"))
    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == "Accuracy (%)"
    assert any(text.startswith(name) for text in texts)
    strokes = {
        element.get("stroke") for element in picture.iter("{http://www.w3.org/2000/svg}path")
    }
    assert {"rgb(0, 0, 0)", "rgb(11, 107, 200)"} <= strokes


def test_a_table_is_saved_as_it_is_sorted(chromium, pages):
    page = chromium.open(pages["run"])
    page.click("table.sortable thead th:nth-child(1) button")
    rows = [*csv.DictReader(io.StringIO(saved(page, "Save Clients as CSV")))]
    assert {row["client"] for row in rows} == {name.strip() for name in _NAMES}
    assert all(float(row["train"]) > 0 for row in rows)


def test_the_answer_of_a_comparison_is_on_the_first_screen(chromium, pages):
    page = chromium.open(pages["comparison"], 1400, 900)
    bottom = "document.querySelector('.answer').getBoundingClientRect().bottom"
    assert page.evaluate(bottom) < 900


def test_the_map_of_gains_sorts(chromium, pages):
    page = chromium.open(pages["comparison"])
    table = "document.querySelector('table.sortable.grid')"
    read = f"[...{table}.tBodies[0].rows].map(row => Number(row.cells[2].dataset.value))"
    page.click("table.sortable.grid thead th:nth-child(3) button")
    gains = page.evaluate(read)
    assert gains == sorted(gains)
    assert len(gains) == len(_NAMES)


def test_boxes_choose_the_curves_of_all_runs(chromium, pages):
    page = chromium.open(pages["index"])
    visible = (
        "[...document.querySelectorAll('.overlay .legend li')].filter(e => !e.hidden)"
        ".map(e => e.querySelector('bdi').textContent)"
    )
    drawn = (
        "[...document.querySelectorAll('.overlay .line')]"
        ".filter(e => getComputedStyle(e).display !== 'none').length"
    )
    before = page.evaluate(visible)
    assert {"run", "large"} <= set(before)
    assert page.evaluate(drawn) == len(before)
    page.evaluate(
        "[...document.querySelectorAll('tr[data-row]')]"
        ".find(e => e.cells[0].textContent.trim() === 'large').querySelector('input').click()"
    )
    assert page.evaluate(visible) == [name for name in before if name != "large"]
    assert page.evaluate(drawn) == len(before) - 1


def test_an_injected_script_would_not_run(chromium, pages, tmp_path):
    """Should a name ever reach the page unescaped, its script is refused."""
    text = pages["run"].read_text()
    assert "<main>" in text
    attacks = (
        "<script>window.attacked = 1</script>",
        "<img src=x onerror='window.attacked = 1'>",
        "<img src='https://example.org/x.png'>",
    )
    for number, attack in enumerate(attacks):
        path = tmp_path / f"{number}.html"
        path.write_text(text.replace("<main>", f"<main>{attack}"))
        page = chromium.open(path)
        assert page.evaluate("window.attacked") is None
        assert any("violates the following Content Security Policy" in m for m in page.messages)

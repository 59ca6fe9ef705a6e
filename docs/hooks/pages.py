"""Adds to the site the pages that are made from the code: API, tutorials, changelog.

Links in all pages are those that work in a clone. Here a link to a notebook becomes one to its
tutorial, and a link to another file of the clone becomes one to a copy of it in the site.
"""

from __future__ import annotations

import ast
import functools
import pathlib
import posixpath
import re
import urllib.parse

import griffe
import griffe_settings
import nbconvert
import nbformat
import public_names
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PACKAGE = "tff_pcdd"

# Pages made from a file outside of docs/, with the file each is made from.
_PAGES = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
}

_ROW = re.compile(r"^\|.*$", re.MULTILINE)

# How much a page counts in the search, by the beginning of its path.
_BOOSTS = {
    **dict.fromkeys(("how-to/", "get_started.md", "index.md", "settings.md", "methods.md"), 3),
    **dict.fromkeys(("api/", "changelog.md", "licences.md", "comparison/", "files/"), 0.3),
}

# The target of a Markdown link without its fragment: no address, not within the page.
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts the tutorials and the API pages into the navigation, below their overviews."""
    below = {
        "tutorials/index.md": [_tutorial_page(notebook) for notebook in _notebooks()],
        "api/index.md": [
            {module.name.removeprefix(f"{_PACKAGE}."): f"api/{module.name}.md"}
            for module in _modules()
        ],
    }
    for entry in config.nav:
        for title, content in entry.items():
            if isinstance(content, str):
                entry[title] = [content, *below[content]] if content in below else content
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not in docs/, and copies of the files that pages link to."""
    origins = {
        file.src_uri: f"docs/{file.src_uri}" for file in files if file.is_documentation_page()
    }
    added: dict[str, str | bytes] = {}
    for notebook in _notebooks():
        page = _tutorial_page(notebook)
        added |= _tutorial(notebook, page)
        origins[page] = f"colab/{notebook.name}"
    for page, source in _PAGES.items():
        added[page] = (_ROOT / source).read_text(encoding="utf-8")
        origins[page] = source
    added |= {f"api/{module.name}.md": _reference(module) for module in _modules()}

    for page, origin in origins.items():
        text = added.get(page) or files.get_file_from_path(page).content_string
        for target in _LINK.findall(text):
            linked = _in_site(origin, target)
            if linked.startswith("files/") and (_ROOT / _resolve(origin, target)).is_file():
                added[linked] = (_ROOT / _resolve(origin, target)).read_bytes()
    for uri, content in added.items():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites links to files outside of docs/."""
    uri = page.file.src_uri
    boost = next((boost for start, boost in _BOOSTS.items() if uri.startswith(start)), 1)
    page.meta.setdefault("search", {"boost": boost})
    if uri.startswith(f"api/{_PACKAGE}"):
        return markdown
    # A table cell such as 73.8 ± 1.1 stays on one line.
    markdown = _ROW.sub(lambda row: row[0].replace(" ± ", "\u00a0±\u00a0"), markdown)
    heading = "## Chosen settings"
    markdown = markdown.replace(f"{heading}\n", f"{heading} {{: data-search-exclude }}\n")
    if uri == "methods.md":
        markdown += _papers()
    notebooks = {_tutorial_page(path): f"colab/{path.name}" for path in _notebooks()}
    origin = {**_PAGES, **notebooks}.get(uri, f"docs/{uri}")

    def rewrite(match: re.Match) -> str:
        if uri in notebooks and files.get_file_from_path(_sibling(uri, match[1])):
            return match[1]  # a picture that the notebook drew
        return posixpath.relpath(_in_site(origin, match[1]), posixpath.dirname(uri) or ".")

    return _LINK.sub(rewrite, markdown)


def _sibling(uri: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(uri), target))


def _resolve(origin: str, target: str) -> str:
    """The path in the clone that a link in the file `origin` leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))


def _in_site(origin: str, target: str) -> str:
    """Where the site has what a link in the file `origin` leads to."""
    path = _resolve(origin, target)
    made = {source: page for page, source in _PAGES.items()} | {"README.md": "index.md"}
    if path in made:
        return made[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("colab/") and path.endswith(".ipynb"):
        return _tutorial_page(pathlib.PurePosixPath(path))
    return f"files/{path}.txt"  # browsers show files of this type


# Tutorials


def _notebooks() -> list[pathlib.Path]:
    return sorted((_ROOT / "colab").glob("*.ipynb"))


def _tutorial_page(notebook: pathlib.PurePath) -> str:
    return f"tutorials/{notebook.stem}.md"


def _tutorial(notebook: pathlib.Path, page: str) -> dict[str, str | bytes]:
    """A notebook with its saved outputs as a page, and its pictures as files of their own."""
    name = posixpath.splitext(posixpath.basename(page))[0]
    content = nbformat.read(notebook, as_version=4)
    resources = {"unique_key": name, "output_files_dir": f"{name}_files"}
    text, resources = nbconvert.MarkdownExporter().from_notebook_node(content, resources)
    pictures = {f"tutorials/{path}": data for path, data in resources["outputs"].items()}
    return {page: _described(text), **pictures}


def _described(text: str) -> str:
    """A notebook's page whose pictures are named by the heading above them."""
    heading, lines = "", []
    for line in text.split("\n"):
        if line.startswith("#"):
            heading = line.strip("# ")
        lines.append(line.replace("![png](", f"![Picture: {heading}]("))
    return "\n".join(lines)


# Methods


def _papers() -> str:
    """A table of the papers of all methods, from the docstrings of their modules."""
    lines = ["\n## Papers\n", "| method | paper | where |", "|---|---|---|"]
    for path in sorted((_ROOT / _PACKAGE / "methods").glob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        cited = " ".join(text.split("\n\n")[1:2]).replace("\n", " ").split("; ")
        if len(cited) < 3 or not re.search(r"\b20\d\d\b", cited[2]):
            continue
        title, authors, where = cited[0], cited[1], cited[2].partition(". ")[0].rstrip(".")
        query = urllib.parse.quote_plus(title)
        link = f"https://arxiv.org/search/?query={query}&searchtype=title"
        first = authors.split(",")[0] + (" et al." if "," in authors else "")
        name = text.split(":")[0].split("\n")[0].rstrip(".")
        lines.append(f"| {name} | [{title}]({link}); {first} | {where} |")
    return "\n".join(lines) + "\n"


# API reference


@functools.cache
def _modules() -> list[public_names.Module]:
    return public_names.public_modules(_ROOT / _PACKAGE)


@functools.cache
def _documented_at() -> dict[str, str]:
    """For each public object, by the path of its definition, the path it is documented under.

    That is the path in the innermost module that exports it; others only refer to it.
    """
    documented = {module.name: module.name for module in _modules()}
    for module in sorted(_modules(), key=lambda module: -module.name.count(".")):
        for name in module.names:
            path = f"{module.name}.{name}"
            # A public module of its own stands before the packages that export its names.
            if _definition(path) == path:
                documented[path] = path
            documented.setdefault(_definition(path), path)
    return documented


@functools.cache
def _tree() -> griffe.Module:
    extensions = griffe.Extensions(griffe_settings.Settings())
    paths = [str(_ROOT)]
    return griffe.load(_PACKAGE, search_paths=paths, resolve_aliases=True, extensions=extensions)


def _definition(path: str) -> str:
    """The path under which an exported object is defined."""
    return _tree()[path.removeprefix(f"{_PACKAGE}.")].canonical_path


def _reference(module: public_names.Module) -> str:
    """The page of a package: its docstring, its public names, its registered components."""
    exported = [f"{module.name}.{name}" for name in module.names]
    here = [path for path in exported if _documented_at()[_definition(path)] == path]
    pages = {module.name for module in _modules()}
    here = [path for path in here if path not in pages]
    elsewhere = [path for path in exported if path not in here]
    heading = ("heading_level: 1", "show_root_full_path: true", "members: false")
    parts = [f"---\ntitle: {module.name}\n---", _block(module.name, *heading)]
    parts += [_block(path, "heading_level: 2") for path in here]
    for stem, classes in module.components:
        path = f"{module.name}.{stem}"
        new = [name for name in classes if f"{path}.{name}" not in _documented_at()]
        if new:
            parts.append(_block(path, "heading_level: 2", f"members: [{', '.join(new)}]"))
    if elsewhere:
        links = [
            f"- [`{path.rpartition('.')[2]}`][{_documented_at()[_definition(path)]}]"
            for path in elsewhere
        ]
        parts.append("\n".join(["## Also exported here", "", *links]))
    return "\n\n".join(parts) + "\n"


def _block(path: str, *options: str) -> str:
    """What mkdocstrings turns into the documentation of an object."""
    return "\n".join([f"::: {path}", "    options:", *(f"      {option}" for option in options)])

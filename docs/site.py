"""What the docs site has beyond docs/: pages of the top folder, and the files that pages link to.

Enters: pages as they stand in the repository, with links to any of its files.
Leaves: a site that stands alone. A link to a file leads to a copy of it; a link to a folder is only text.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = "docs/"

FRONT: Final = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages of the top folder, and their places in the site."""

LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace `folder/*` in the navigation by the pages of that folder, its README first."""
    config.nav = list(_written_out(config.nav or []))
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the top folder, and every file outside docs/ that a page links to."""
    for name, place in {**FRONT, **_linked()}.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, **_unused: Any) -> str:
    """Lead each link to the place that its target has in the site."""
    here = page.file.src_uri
    source = {**_by_place(FRONT), **_by_place(_linked())}.get(here, DOCS + here)

    def led(link: re.Match[str]) -> str:
        image, text, target, anchor = link.groups()
        place = _place(source, target)
        if place is None:
            return text
        return f"{image}[{text}]({posixpath.relpath(place, posixpath.dirname(here) or '.')}{anchor or ''})"

    return LINK.sub(led, markdown)


def _written_out(entries: list[Any]) -> Iterator[Any]:
    for entry in entries:
        if isinstance(entry, dict):
            [(title, below)] = entry.items()
            wide = isinstance(below, list) or below.endswith("/*")
            listed = below if isinstance(below, list) else [below]
            yield {title: list(_written_out(listed)) if wide else below}
        elif entry.endswith("/*"):
            folder = ROOT / DOCS / entry.removesuffix("/*")
            pages = sorted(
                folder.glob("*.md"), key=lambda page: (page.name != "README.md", page.name)
            )
            yield from (str(page.relative_to(ROOT / DOCS)) for page in pages)
        else:
            yield entry


def _place(source: str, target: str) -> str | None:
    """Where the target of a link in the file `source` is in the site; None for a folder."""
    name = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if (ROOT / name / "README.md").is_file():
        name += "/README.md"
    if name in FRONT:
        return FRONT[name]
    if not (ROOT / name).is_file():
        return None
    return name.removeprefix(DOCS) if name.startswith(DOCS) else f"files/{name}"


def _linked() -> dict[str, str]:
    """Files outside docs/ to which pages lead, and their places in the site."""
    found: dict[str, str] = {}
    unread = [*FRONT, *(str(page.relative_to(ROOT)) for page in (ROOT / DOCS).rglob("*.md"))]
    while unread:
        source = unread.pop()
        for link in LINK.finditer((ROOT / source).read_text()):
            place = _place(source, link[3])
            if (
                place
                and place.startswith("files/")
                and (name := place.removeprefix("files/")) not in found
            ):
                found[name] = place
                unread += [name] if name.endswith(".md") else []
    return found


def _by_place(places: dict[str, str]) -> dict[str, str]:
    return {place: name for name, place in places.items()}

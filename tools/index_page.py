"""Checks the page that a package index makes of a wheel: README, without the files that its links lead to in the
repository.

    python -m tools.index_page dist/*.whl              # it renders, and no link or picture is relative
    python -m tools.index_page --release dist/*.whl    # and it links to the repository

docs/contributing/releasing.md describes what a release sets.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from email import message_from_string
from email.message import Message
from html.parser import HTMLParser
from pathlib import Path


class Links(HTMLParser):
    """Collects the targets of links and pictures in `targets`."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.targets += [value or "" for name, value in attrs if name in {"href", "src"}]


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode())


def problems_of(html: str, urls: dict[str, str], *, release: bool) -> Iterator[str]:
    """What is wrong with a rendered description, given the `[project.urls]`; a release needs the repository's
    address."""
    targets = Links(html).targets
    for target in targets:
        if not target.startswith(("https://", "#")):
            yield f"{target!r} leads to no page on a package index: add a substitution to pyproject.toml"
    if release:
        source = urls.get("Source")
        if source is None:
            yield "[project.urls] has no Source: set the repository's address as docs/contributing/releasing.md describes"
        elif not any(target.startswith(source) for target in targets):
            yield f"no link leads to {source}: set the substitutions as docs/contributing/releasing.md describes"


def main(arguments: list[str]) -> int:
    from readme_renderer import markdown

    failed = False
    for wheel in (Path(name) for name in arguments if name != "--release"):
        metadata = metadata_of(wheel)
        html = markdown.render(str(metadata.get_payload()))
        urls = dict(line.split(", ", 1) for line in metadata.get_all("Project-URL", []))
        problems = list(problems_of(html, urls, release="--release" in arguments)) if html else ["nothing to show"]
        failed = failed or bool(problems)
        print(*(f"{wheel.name}: {problem}" for problem in problems or ["a package index can show it"]), sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

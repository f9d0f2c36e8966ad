"""Links lead somewhere, and the index has every page."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS, PAGES, anchors, page_id, text_of, without_code
from tools.public_api import ROOT


def test_links_between_pages_lead_to_a_file_and_heading() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if "://" not in link:
                assert target.is_relative_to(ROOT), f"{page_id(page)}: {link}"
                assert target.exists(), f"{page_id(page)}: {link}"
                assert not anchor or anchor in anchors(target), f"{page_id(page)}: {link}"


def test_index_links_to_every_page() -> None:
    linked = set(re.findall(r"\]\(([^)#\s]+)", text_of("README.md")))
    assert {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} - linked == {"README.md"}

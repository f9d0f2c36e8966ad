"""What a package index can't show is reported."""

from __future__ import annotations

from tools.index_page import problems_of

SOURCE = "https://example.com/locks"
PAGE = '<a href="#quickstart"></a><a href="https://example.com/locks/blob/v1/docs/quickstart.md">Quickstart</a>'


def test_index_page_with_a_relative_link_or_picture_is_refused() -> None:
    html = PAGE + '<a href="docs/quickstart.md">Quickstart</a><img alt="A list" src="docs/list.png">'
    assert [problem.split()[0] for problem in problems_of(html, {}, release=False)] == [
        "'docs/quickstart.md'",
        "'docs/list.png'",
    ]


def test_release_without_the_address_of_the_repository_is_refused() -> None:
    (missing,) = problems_of(PAGE, {}, release=True)
    assert missing.startswith("[project.urls] has no Source: ")
    (unused,) = problems_of("<p>Quickstart</p>", {"Source": SOURCE}, release=True)
    assert unused.startswith(f"no link leads to {SOURCE}: ")
    assert list(problems_of(PAGE, {"Source": SOURCE}, release=True)) == []

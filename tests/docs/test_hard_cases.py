"""reference/hard-cases.md is what `make hard-cases` writes."""

from __future__ import annotations

from tools.hard_cases import GROUPS, PAGE, by_case, page


def test_page_of_hard_cases_is_up_to_date() -> None:
    assert {case[0] for case in by_case()} == set(GROUPS)
    assert PAGE.read_text(encoding="utf-8") == page(), "Run `make hard-cases`."

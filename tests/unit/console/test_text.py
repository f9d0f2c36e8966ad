"""Formatting of text for a terminal."""

from __future__ import annotations

from django_redis_locks.console.text import bytes_of, cut, span, table, width
from django_redis_locks.core.text import distinct

ESCAPED = {
    "order:42": "order:42",
    "a\nb\r\t": r"a\nb\r\t",
    "\x1b[31mred\x1b[0m": r"\x1b[31mred\x1b[0m",
    "\x9b31m": r"\x9b31m",
    "\x00\x07\x7f": r"\x00\x07\x7f",
    "abc\u202edef": r"abc\u202edef",
    "a\u200bb\u2028c\ufeff": r"a\u200bb\u2028c\ufeff",
    "a\\nb": r"a\\nb",
    "  two ": r"\x20\x20two\x20",
    "   ": r"\x20\x20\x20",
    "a b": "a b",
    "注文:四十二": "注文:四十二",
    "": "",
}
SPANS = {
    0.0: "0.0 s",
    -0.0001: "0.0 s",
    0.26: "0.3 s",
    9.96: "10 s",
    59.4: "59 s",
    59.6: "1 m 00 s",
    3599.7: "1 h 00 m",
    3661: "1 h 01 m",
    90_000: "1 d 1 h",
    -12: "-12 s",
}
SIZES = {0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 5 << 20: "5.0 MiB", 3 << 40: "3.0 TiB", 1 << 60: "1048576.0 TiB"}


def test_unprintable_text_is_escaped() -> None:
    """Control characters, line ends, bidirectional marks, invisible characters. Letters of any script stay
    unchanged."""
    assert {text: distinct(text) for text in ESCAPED} == ESCAPED
    assert all(distinct(text).isprintable() for text in ESCAPED)


def test_different_texts_are_escaped_differently() -> None:
    """Otherwise an operator could free another lock than the displayed one."""
    texts = ["a\nb", r"a\nb", r"a\\nb", " a", r"\x20a", "a\u200bb", r"a\u200bb"]
    assert len({distinct(text) for text in texts}) == len(texts)


def test_table_aligns_columns_of_any_script() -> None:
    """A wide character takes two columns, a combining one takes none."""
    lines = [*table([["KEY", "FENCE"], ["注文", "1"], ["e\u0301te\u0301", "2"], ["abcdef", "3"]])]
    assert [width(line[: line.index(end)]) for line, end in zip(lines, "F123", strict=True)] == [8, 8, 8, 8]


def test_cut_line_fits() -> None:
    for columns in range(1, 12):
        for text in ("abcdefghij", "注文四十二", "注a文b"):
            assert width(cut(text, columns)) <= max(columns, 1)
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "ab…"


def test_times_and_sizes_are_rounded_to_readable_units() -> None:
    assert {seconds: span(seconds) for seconds in SPANS} == SPANS
    assert {number: bytes_of(number) for number in SIZES} == SIZES

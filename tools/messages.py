"""Extracts translatable messages, and updates their translations in `django_redis_locks/locale`.

    python -m tools.messages            adds new messages to each django.po, and compiles django.mo
    python -m tools.messages --check    only reports what is missing, as `make test` does

New messages have no translation: write it into the .po, and run this again. Messages that were removed from the sources
stay at the end of the .po, after `#~`, and are reused if they return. GNU gettext isn't needed.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import polib
from django.conf import settings
from django.utils.translation.template import templatize

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "django_redis_locks"
LOCALE = PACKAGE / "locale"
LANGUAGES = {"en": "nplurals=2; plural=(n != 1);", "zh_Hans": "nplurals=1; plural=0;"}
"""Languages and their plural rules. English is listed so that it is found on sites with another default language."""

ARGUMENTS = {"gettext": 1, "ngettext": 2, "pgettext": 2, "npgettext": 3}
"""The number of literals that each gettext function takes; with a p the first one is the context."""

WIDTH = 110

_in_template = re.compile(r"\b(n?p?gettext)\(((?:u?'(?:[^'\\]|\\.)*'|u?\"(?:[^\"\\]|\\.)*\"|,\s*)+)")


class Message(NamedTuple):
    """A message as gettext identifies it."""

    text: str
    plural: str = ""
    context: str = ""


def sources() -> list[Path]:
    return sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.html"), *PACKAGE.rglob("*.txt")])


def messages() -> dict[Message, set[str]]:
    """All messages of the sources, with their files."""
    found: dict[Message, set[str]] = {}
    for path in sources():
        text = path.read_text(encoding="utf-8")
        for message in in_python(text) if path.suffix == ".py" else in_template(text):
            found.setdefault(message, set()).add(str(path.relative_to(ROOT)))
    return found


def in_python(source: str) -> Iterator[Message]:
    """
    Raises:
        ValueError: an argument of a gettext function isn't a literal.
    """
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
            continue
        name = "gettext" if node.func.id == "_" else re.sub(r"_(lazy|noop)$", "", node.func.id)
        if name in ARGUMENTS:
            literals = [one.value if isinstance(one, ast.Constant) else None for one in node.args[: ARGUMENTS[name]]]
            yield _message(name, literals, ast.unparse(node))


def in_template(source: str) -> Iterator[Message]:
    for match in _in_template.finditer(templatize(source)):
        name, literals = match[1], ast.literal_eval(f"[{match[2].rstrip(', ')}]")
        yield _message(name, literals, match[0])


def _message(name: str, literals: Sequence[object], where: str) -> Message:
    texts = [literal for literal in literals if isinstance(literal, str) and literal]
    if len(texts) != ARGUMENTS[name]:
        raise ValueError(f"only literals can be translated: {where}")
    context = texts.pop(0) if "p" in name.removesuffix("gettext") else ""
    return Message(texts[0], "".join(texts[1:]), context)


def place(language: str) -> Path:
    return LOCALE / language / "LC_MESSAGES" / "django.po"


def read(path: Path) -> polib.POFile:
    return polib.pofile(str(path), wrapwidth=WIDTH)


def of(entry: polib.POEntry) -> Message:
    return Message(entry.msgid, entry.msgid_plural or "", entry.msgctxt or "")


def update(language: str) -> polib.POFile:
    """Update the translations of a language from the sources. They are sorted, so that merge conflicts are rare."""
    path = place(language)
    old = {of(entry): entry for entry in read(path)} if path.exists() else {}
    said = messages()
    new = polib.POFile(wrapwidth=WIDTH)
    new.metadata = {
        "Project-Id-Version": "django-redis-locks",
        "Language": language,
        "MIME-Version": "1.0",
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Transfer-Encoding": "8bit",
        "Plural-Forms": LANGUAGES[language],
    }
    for message in sorted({*said, *old}):
        entry = old.get(message) or _entry(message, language)
        entry.obsolete = message not in said
        entry.occurrences = [(file, "") for file in sorted(said.get(message, ()))]
        formatted = "python-format" if re.search(r"%(\(\w+\))?[sdr]", message.text) else None
        entry.flags = [flag for flag in (formatted, "fuzzy" if entry.fuzzy else None) if flag]
        new.append(entry)
    return new


def _entry(message: Message, language: str) -> polib.POEntry:
    english = language == "en"
    entry = polib.POEntry(msgid=message.text, msgctxt=message.context or None)
    if message.plural:
        entry.msgid_plural = message.plural
        forms = [message.text, message.plural] if english else [""]
        entry.msgstr_plural = dict(enumerate(forms))
    else:
        entry.msgstr = message.text if english else ""
    return entry


def problems(language: str) -> Iterator[str]:
    """Missing, surplus and wrong translations of a language."""
    path = place(language)
    if not path.exists():
        yield f"{path.name} of {language} is missing."
        return
    found = read(path)
    if str(update(language)) != str(found):
        yield f"{language}: django.po isn't what the sources say. Run `make messages`."
    for entry in found:
        if entry.obsolete:
            continue
        forms = list(entry.msgstr_plural.values()) if entry.msgid_plural else [entry.msgstr]
        if not all(forms) or entry.fuzzy:
            yield f"{language}: {entry.msgid!r} isn't translated."
        for form in filter(None, forms):
            if _places(form) != _places(entry.msgid_plural or entry.msgid) and _places(form) != _places(entry.msgid):
                yield f"{language}: {entry.msgid!r} has other placeholders than {form!r}."
    compiled = path.with_suffix(".mo")
    if not compiled.exists() or compiled.read_bytes() != found.to_binary():
        yield f"{language}: django.mo isn't made of django.po. Run `make messages`."


def _places(text: str) -> set[str]:
    return set(re.findall(r"%\(\w+\)[sdr]|%[sdr]", text))


def main() -> int:
    settings.configure()
    if "--check" not in sys.argv[1:]:
        for language in LANGUAGES:
            path = place(language)
            path.parent.mkdir(parents=True, exist_ok=True)
            new = update(language)
            new.save(str(path))
            read(path).save_as_mofile(str(path.with_suffix(".mo")))
    wrong = [problem for language in LANGUAGES for problem in problems(language)]
    print(*wrong, sep="\n") if wrong else print(f"{len(messages())} messages, all translated.")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

"""Tables of the documentation list the same names as `tests/public_api.txt`, and links have a target."""

from __future__ import annotations

import ast
import itertools
import json
import re

from django.http import HttpResponse

from django_redis_locks import redis_lock
from tests.docs.examples import get, hold_elsewhere
from tests.docs.pages import BLOCKS, DOCS, PAGES, anchors, page_id, public, rows, text_of, without_code
from tools.public_api import PACKAGES, ROOT


def words_of(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def names_in_code(text: str) -> set[str]:
    return set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", text))))


def imports_of(name: str) -> set[str]:
    """The names that the block of this name in the reference imports."""
    (code,) = (block.code for block in BLOCKS if block.page.name == "api.md" and block.name == name)
    return words_of(code.partition("import (")[2])


def exported_by(module: str) -> set[str]:
    return set(public(rf"{re.escape(module)}\.(\w+)(?=:| =)"))


# Settings and checks


def test_settings_page_names_every_key_with_its_default() -> None:
    table = rows("reference/settings.md", first="[A-Z_]+")
    defaults = public(r"REDIS_LOCKS\[alias\] (\w+) = ")
    assert {*defaults, *public(r"REDIS_LOCKS\[alias\]\['LOCKS'\]\[name\] (\w+)")} <= set(table)
    for key, default in defaults.items():
        assert ast.literal_eval(table[key][2].strip("`")) == ast.literal_eval(default), key


def test_settings_page_names_the_settings_of_pages_with_their_defaults() -> None:
    table = rows("reference/settings.md", first="CACHE_MIDDLEWARE_[A-Z_]+")
    assert set(table) == set(public(r"setting (CACHE_MIDDLEWARE_\w+)"))
    defaults = public(r"django_redis_locks\.cache\.middleware\.StampedeFetchMiddleware\.(stale|wait): float = ")
    for name, cells in table.items():
        assert float(cells[1].strip("`")) == float(defaults[name.rpartition("_")[2].lower()]), name


def test_checks_page_explains_every_id_once() -> None:
    """Each id with what it says and what to do."""
    table = rows("reference/checks.md", first=r"(celery_locks\.)?[EWI]\d{3}")
    assert {f"redis_locks.{id}" if id[1:].isdigit() else id for id in table} == set(public("system check (.+)"))
    assert all(says and do for _, says, do in table.values())
    page = text_of("reference/checks.md")
    assert all(len(re.findall(rf"^\| `{re.escape(id)}` \|", page, re.MULTILINE)) == 1 for id in table)
    assert "`redis_locks.`" in page


# Commands


def test_commands_page_names_every_verb_and_option() -> None:
    known: dict[str, set[str]] = {}
    verbs = set()
    for verb, option in (said.split()[:2] for said in public(r"manage\.py redis_locks ([a-z-]+ (?!code)\S+)")):
        verbs.add(verb)
        if option.startswith("--"):
            known.setdefault(option, set()).add(verb)
    text = text_of("reference/commands.md")
    assert [verb for verb in verbs if f"`redis_locks {verb}" not in text] == []
    options = {option.split()[0]: cells for option, cells in rows("reference/commands.md", first=r"--.+").items()}
    assert set(options) == set(known)
    for option, cells in options.items():
        assert known[option] == (verbs if cells[1] == "all" else set(re.findall(r"`([\w-]+)`", cells[1]))), option


# The reference of the API


def test_api_page_names_everything_exported() -> None:
    exported = exported_by("django_redis_locks")
    assert imports_of("names") == exported
    text = text_of("reference/api.md")
    assert [name for name in exported if not re.search(rf"`{name}[`(]", text)] == []


def test_api_page_names_everything_exported_for_caches() -> None:
    exported = exported_by("django_redis_locks.cache")
    assert imports_of("caching") == exported
    section = text_of("reference/api.md").partition("\n## Caching\n")[2].partition("\n## ")[0]
    code = next(block.code for block in BLOCKS if block.page.name == "api.md" and block.name == "caching")
    prose = section.replace(code, "")
    assert [name for name in exported if not re.search(rf"`[^`\n]*\b{name}\b|\b{name}  ", prose)] == []
    attributes = public(r"(?:Cached|django_redis_locks\.cache\.(?:Job|LoadContext|LoadResult))\.([a-z]\w*)\b")
    assert [name for name in attributes if not re.search(rf"`[^`\n]*\b{name}\b", prose)] == []


def test_api_page_names_every_public_method() -> None:
    words = words_of(" ".join(itertools.chain(*rows("reference/api.md", first=r".+").values())))
    methods = public(r"django_redis_locks\.(?:Lock|Grant|Holder|RecordRef|locks)\.([a-z]\w*): (?:async )?function")
    assert set(methods) - words == set()


def test_api_page_names_every_keyword_argument_with_its_default() -> None:
    """Options of a load are in a table of their own."""
    text = text_of("reference/api.md")
    functions = r"redis_lock|locks\.lock|cache\.(?:get_or_load|invalidate|cached_page|cached)"
    for function, signature in public(rf"django_redis_locks\.({functions}): function ").items():
        keywords = re.split(r", (?=\*{0,2}\w+: )", signature[signature.index("*") :].rpartition(") ->")[0])
        arguments = [re.fullmatch(r"(?:\*, )?(\w+): .+ = (.+)", keyword) for keyword in keywords]
        assert any(arguments), function
        for name, default in (match.groups() for match in arguments if match):
            shown = json.dumps(default[1:-1]) if default.startswith("'") else default
            assert re.search(rf"\b{name}={re.escape(shown)}", text), (function, name)


def test_api_page_names_every_option_of_a_load_with_its_default() -> None:
    table = rows("reference/api.md", first=r"\w+", after="### Options of a load")
    known = public(r"load option (\w+) = ")
    options = {name: cells[1:] for name, cells in table.items() if name in known}
    differing = {"ttl": "the cache's `TIMEOUT`", "max_hold": "`None`", "wait": "`None`", "load_timeout": "`None`"}
    for name, default in known.items():
        value = None if default.startswith("<") else ast.literal_eval(re.sub(r"inf|MISSING", r"'\g<0>'", default))
        usual = f"{value:g}" if type(value) is float else default.replace("'", '"')
        assert options[name][1] == differing.get(name, f"`{usual}`"), name
    choices = public(r"@cached option (\w+): (?=.*Literal)")
    for name, annotation in choices.items():
        assert re.findall(r'`"(\w+)"`', options[name][0]) == re.findall(r"'(\w+)'", annotation), name


def test_api_page_names_every_counter() -> None:
    table = text_of("reference/api.md").partition("\n| counter | counts |\n")[2].partition("\n\n")[0]
    cells = re.findall(r"^\| (.+?) \|", table, re.MULTILINE)
    assert names_in_code(" ".join(cells)) == set(public(r"load counter (\w+)"))


# The guides


def test_celery_page_names_every_option_of_a_task_with_its_default() -> None:
    table = text_of("howto/celery.md").partition("| option |")[2].partition("\n\n")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", table, re.MULTILINE))
    known = public(r"celery_locks\.SingletonTask\.((?:lock_|unique_|idempotency_)\w+): .+ = ")
    known.pop("lock_usual_conflict")
    assert {name: eval(value) for name, value in shown.items()} == {name: eval(value) for name, value in known.items()}


def test_testing_page_names_every_helper_with_its_arguments() -> None:
    table = rows("howto/testing.md", first=r"\w+\(.*\)")
    named = {call.partition("(")[0]: call for call in table}
    assert set(named) | {"Captured"} == exported_by("django_redis_locks.testing") - {"fixtures"}
    signatures = public(r"django_redis_locks\.testing\.(\w+): (?:function|constructor) \(")
    for name, call in named.items():
        parameters = re.findall(r"(?:^|, )\*{0,2}(\w+):", signatures[name].rpartition(")")[0])
        assert re.findall(r"[(,] ?\**(\w+)", call) == parameters, name


def test_operations_page_names_every_signal_with_its_event() -> None:
    table = rows("howto/operations.md", first=r"lock_\w+")
    known = public(r"django_redis_locks\.signals\.(\w+): signal ")
    assert set(table) == set(known)
    for name, said in known.items():
        _, _, fields, level, logger = table[name]
        match = re.fullmatch(r"\(event: \w+\(key, name, alias, (.+)\), logged by ([\w.]+) as (\w+)\)", said)
        assert match is not None, name
        assert re.findall(r"`(\w+)`", fields) == match[1].split(", "), name
        assert (logger, level) == (f"`{match[2]}`", match[3]), name


def test_answers_page_shows_the_json_of_a_refused_request(memory: None) -> None:
    (shown,) = (json.loads(block.code) for block in BLOCKS if block.name == "problem")
    view = redis_lock(key="checkout")(lambda request: HttpResponse())
    with hold_elsewhere("checkout"):
        response = view(get(accept="application/json"))
    assert response["Content-Type"] == "application/problem+json"
    assert json.loads(response.content) == shown


# Links


def test_links_between_pages_lead_to_a_file_and_heading() -> None:
    for page in {*PAGES, *ROOT.glob("*.md"), *ROOT.glob("changelog.d/*.md")}:
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


def test_pages_name_only_files_of_the_repository_that_exist() -> None:
    named = rf"`((?:{'|'.join(['tests', 'tools', 'benchmarks', 'docs', 'example_project', *PACKAGES])})/[\w/.*]*)"
    for page in {*PAGES, *ROOT.glob("*.md")}:
        for name in re.findall(named + r"`", page.read_text()):
            assert list(ROOT.glob(name)), f"{page_id(page)}: {name}"


def test_architecture_page_names_only_folders_and_files_that_exist() -> None:
    package = ROOT / "django_redis_locks"
    named = re.findall(r"[\w/]+(?:/(?=[\s:*`,.])|\.py\b)", text_of("explain/architecture.md"))
    assert {"primitives/", "engine/", "core/runner.py"} <= set(named)
    folders = [package, package / "backends", ROOT]
    assert [name for name in named if not any((folder / name).exists() for folder in folders)] == []

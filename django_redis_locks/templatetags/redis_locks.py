"""The template tag ``{% cached %}``: caches a fragment, and lets one request in the cluster render it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.cache import InvalidCacheBackendError, caches
from django.core.cache.utils import make_template_fragment_key
from django.template import Library, Node, TemplateSyntaxError, VariableDoesNotExist
from django.template.base import FilterExpression, kwarg_re

from ..cache.api import get_or_load
from ..cache.options import XFetch
from ..cache.options import options as checked
from ..handler import locks

if TYPE_CHECKING:
    from django.template import Context
    from django.template.base import NodeList, Parser, Token

register = Library()

OPTIONS = (
    "stale",
    "early",
    "wait",
    "wait_stale",
    "on_timeout",
    "default",
    "max_hold",
    "jitter",
    "stale_if_error",
    "error_ttl",
    "store_in_atomic",
)
"""The options of ``get_or_load`` that apply to a fragment."""

CACHE = "cache"
USING = "using"
XFETCH = "xfetch"


class CachedNode(Node):
    """The node of ``{% cached %}``."""

    def __init__(
        self,
        nodelist: NodeList,
        ttl: FilterExpression,
        name: str,
        vary_on: list[FilterExpression],
        options: dict[str, FilterExpression],
    ) -> None:
        self.nodelist = nodelist
        self.ttl = ttl
        self.name = name
        self.vary_on = vary_on
        self.options = options

    def render(self, context: Context) -> Any:
        """Return the fragment, from the cache or rendered."""
        ttl = _resolved(self.ttl, context)
        if ttl is not None:
            try:
                ttl = int(ttl)
            except (ValueError, TypeError):
                raise TemplateSyntaxError(f'"cached" tag got a non-integer ttl: {ttl!r}') from None
        options = {name: _resolved(value, context) for name, value in self.options.items()}
        cache = _cache(options.pop(CACHE, None))
        using = _using(options.pop(USING, None))
        if options.get("early") == XFETCH:
            options["early"] = XFetch()
        options["ttl"] = ttl
        try:
            checked(options)
        except (TypeError, ValueError) as error:
            raise TemplateSyntaxError(f'"cached" tag: {error}') from None
        key = make_template_fragment_key(self.name, [value.resolve(context) for value in self.vary_on])
        return get_or_load(key, lambda: self.nodelist.render(context), cache=cache, using=using, **options)


def _resolved(value: FilterExpression, context: Context) -> Any:
    try:
        return value.resolve(context)
    except VariableDoesNotExist:
        raise TemplateSyntaxError(f'"cached" tag got an unknown variable: {value.var!r}') from None


def _cache(alias: Any) -> str:
    if alias is None:
        return "template_fragments" if "template_fragments" in caches.settings else "default"
    try:
        caches[alias]
    except InvalidCacheBackendError:
        raise TemplateSyntaxError(f"Invalid cache name specified for cached tag: {alias!r}") from None
    return str(alias)


def _using(alias: Any) -> str | None:
    if alias is None:
        return None
    if alias not in locks.configuration():
        raise TemplateSyntaxError(
            f'"cached" tag: using={alias!r} isn\'t in REDIS_LOCKS; to name the cache write cache={alias!r}'
        )
    return str(alias)


@register.tag("cached")
def do_cached(parser: Parser, token: Token) -> CachedNode:
    """Cache a fragment of a template; one request in the cluster renders it::

        {% load redis_locks %}
        {% cached 300 "sidebar" user.pk stale=60 %}
            ...
        {% endcached %}

    The arguments are the ttl in seconds, a name, the values on which the fragment depends, and options of
    ``get_or_load``. ``cache`` is an alias of ``CACHES``, by default ``template_fragments`` or ``default``. ``using`` is
    an alias of ``REDIS_LOCKS``, whereas in Django's ``{% cache %}`` it is one of ``CACHES``. ``early="xfetch"`` stands
    for ``XFetch()``. The key is that of ``make_template_fragment_key(name, vary_on)``.
    """
    nodelist = parser.parse(("endcached",))
    parser.delete_first_token()
    tag, *words = token.split_contents()
    options: dict[str, FilterExpression] = {}
    while words:
        match = kwarg_re.match(words[-1])
        if match is None or not match[1]:
            break
        if match[1] not in (*OPTIONS, CACHE, USING):
            raise TemplateSyntaxError(
                f"{tag!r} tag has no option {match[1]!r}; there are {', '.join((CACHE, USING, *OPTIONS))}"
            )
        options[match[1]] = parser.compile_filter(match[2])
        words.pop()
    if len(words) < 2:
        raise TemplateSyntaxError(f"{tag!r} tag requires at least 2 arguments.")
    return CachedNode(
        nodelist,
        parser.compile_filter(words[0]),
        _unquoted(words[1]),
        [parser.compile_filter(word) for word in words[2:]],
        options,
    )


def _unquoted(name: str) -> str:
    return name[1:-1] if name[:1] in "\"'" and name[-1:] == name[:1] and len(name) > 1 else name

"""``FunctionCache``: loads, refreshes and invalidates the cached values of one function."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from asgiref.sync import async_to_sync

from ...callable_kinds import is_async, name_of
from ...core import key_templates as templates
from ...core.runner import arun, run
from .. import api_invalidate, api_many, metrics
from ..loading.coordinator import coordinator_of
from ..loading.get import get_in_thread, get_value, read_first, reload_value
from ..loading.loader import active_loads, stacks_of_keys
from ..loading.refresh_job import Job, carry_out
from ..loading.request import LoadRequest
from ..results import LoadResult
from ..stampede_settings import options_for
from ..values import CachedValue
from .keys import key_maker

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from ...core.key_templates import Field
    from ..loading.coordinator import CacheCoordinator
    from ..results import Source


class FunctionCache:
    """The cached values of one function with ``@cached``.

    Attributes:
        function: the function before decoration.
        label: its name in messages and keys: ``module.qualname``.
        path: its import path for other processes: ``module:qualname``.
        asynchronous: whether a call of it must be awaited.
        sources: counts the values of its calls by their sources.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        template: str | None,
        location: dict[str, Any],
        options: dict[str, Any],
        *,
        vary_on_language: bool,
        many: Callable[..., Any] | None,
        info: bool,
    ) -> None:
        name = name_of(function)
        self.function = function
        self.label = f"{function.__module__}.{name}"
        self.path = f"{function.__module__}:{name}"
        self.asynchronous = is_async(function)
        self.sources: metrics.Counters[Source] = metrics.Counters()
        self._name = template or self.label
        self._make_key = key_maker(template, function, self.label, vary_on_language=vary_on_language)
        self._is_class_method = _looks_like_class_method(function)
        self._location = location
        self._options = {name: value for name, value in options.items() if name != "groups"}
        self._group_makers = [
            templates.compile_template(group, function, fill=_unescaped) for group in options.get("groups", ())
        ]
        # A job loads one value, so batches aren't handed over to workers
        self._many_options = dict(self._options)
        if options.get("refresh") == "celery":
            self._many_options["refresh"] = "thread"
        self._many = many
        self._info = info

    def key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the key of a call in the cache."""
        if self._is_class_method and not (args and isinstance(args[0], type)):
            raise TypeError(
                f"{self.label} doesn't get the class as its first argument. Write @cached above @classmethod: below it, "
                "Python 3.13 and later pass the class to calls only, not to invalidate() and other methods"
            )
        return self._make_key(args, kwargs)

    def load(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the value of a call, from the cache or loaded."""
        location = self._location
        coordinator = coordinator_of(location["cache"], location["using"])
        key, first_read = self.key(args, kwargs), None
        if not coordinator.same_server and not self._group_makers:
            first_read = read_first(coordinator, key, location["version"])
            if type(first_read) is not CachedValue:
                self.sources["hit"].add()
                return LoadResult(first_read, "hit") if self._info else first_read
        request = self._request_for(coordinator, key, args, kwargs)
        return self._result_or_value(get_in_thread(request, first_read))

    async def aload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the value of a call, from the cache or loaded."""
        request = self._request(args, kwargs)
        return self._result_or_value(await arun(get_value(request), request.coordinator.performer))

    def refresh(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Load the value of a call now, and store it."""
        self._refuse_async("arefresh")
        request = self._request(args, kwargs)
        return self._result_or_value(run(reload_value(request), request.coordinator.performer))

    async def arefresh(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Load the value of a call now, and store it."""
        request = self._request(args, kwargs)
        return self._result_or_value(await arun(reload_value(request), request.coordinator.performer))

    def take_over(self, token: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Carry out a load that another process claimed. Returns False if the claim is void, or the load failed."""
        request = self._request(args, kwargs)
        if self.asynchronous:
            return async_to_sync(arun)(carry_out(request, token), request.coordinator.performer)
        return run(carry_out(request, token), request.coordinator.performer)

    def invalidate(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, stale: bool, **arguments: Any) -> None:
        """Delete the value of a call. ``stale``: callers are still served it while one of them loads."""
        api_invalidate.invalidate(
            self.key(args, kwargs), **self._location, stale=self._stale_seconds(stale), **arguments
        )

    async def ainvalidate(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], *, stale: bool, **arguments: Any
    ) -> None:
        """Delete the value of a call. ``stale``: callers are still served it while one of them loads."""
        await api_invalidate.ainvalidate(
            self.key(args, kwargs), **self._location, stale=self._stale_seconds(stale), **arguments
        )

    def _stale_seconds(self, stale: bool) -> float:
        if type(stale) is not bool:
            raise ValueError(
                f"stale is True or False here, not {stale!r}: the seconds are set by the function's option stale"
            )
        return options_for(self._location["cache"], self._options).stale if stale else 0

    def _result_or_value(self, result: LoadResult[Any]) -> Any:
        self.sources[result.source].add()
        return result if self._info else result.value

    def _request(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LoadRequest:
        coordinator = coordinator_of(self._location["cache"], self._location["using"])
        return self._request_for(coordinator, self.key(args, kwargs), args, kwargs)

    def _request_for(
        self, coordinator: CacheCoordinator, key: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> LoadRequest:
        options = options_for(self._location["cache"], self._options)
        return LoadRequest(
            coordinator,
            key,
            self._location["version"],
            self._loader(args, kwargs),
            options,
            name=self._name,
            job=None if options.refresh in ("inline", "thread") else self._job(args, kwargs),
            asynchronous=self.asynchronous,
            groups=self._groups(args, kwargs) if self._group_makers else (),
        )

    def _groups(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, ...]:
        return tuple(make(args, kwargs) for make in self._group_makers)

    def _options_of_many(self, first: tuple[Any, ...], by_key: dict[str, Any]) -> dict[str, Any]:
        """Return the options of a load of many values."""
        if not self._group_makers:
            return self._many_options
        return {**self._many_options, "groups": lambda key: self._groups((*first, *_arguments(by_key[key])), {})}

    def _job(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Job:
        if self._is_class_method:  # the class is part of the path
            owner = args[0]
            return Job(f"{owner.__module__}:{owner.__qualname__}.{self.function.__name__}", args[1:], kwargs)
        return Job(self.path, args, kwargs)

    def get_many(self, first: tuple[Any, ...], calls: list[Any]) -> list[Any]:
        """Return the values of many calls, in their order."""
        self._refuse_async("aget_many")
        keys = self._keys(first, calls)
        by_key = dict(zip(keys, calls, strict=True))

        def load(missing: list[str]) -> dict[str, Any]:
            if self._many is not None:
                return _by_key(self._many(*first, [by_key[key] for key in missing]), missing, by_key)
            return self._load_each(first, missing, by_key)

        found = api_many.get_or_load_many(
            list(by_key), load, info=True, **self._location, **self._options_of_many(first, by_key)
        )
        return [self._result_or_value(found[key]) for key in keys]

    async def aget_many(self, first: tuple[Any, ...], calls: list[Any]) -> list[Any]:
        """Return the values of many calls, in their order."""
        keys = self._keys(first, calls)
        by_key = dict(zip(keys, calls, strict=True))

        def load(missing: list[str]) -> dict[str, Any]:
            return self._load_each(first, missing, by_key)

        async def aload(missing: list[str]) -> dict[str, Any]:
            loads = [self.function(*first, *_arguments(by_key[key])) for key in missing]
            return dict(zip(missing, await _gather(loads), strict=True))

        def load_many(missing: list[str]) -> dict[str, Any]:
            return _by_key(many(*first, [by_key[key] for key in missing]), missing, by_key)

        async def aload_many(missing: list[str]) -> dict[str, Any]:
            return _by_key(await many(*first, [by_key[key] for key in missing]), missing, by_key)

        many: Any = self._many
        if many is None:
            loader: Any = aload if self.asynchronous else load
        else:
            loader = aload_many if is_async(many) else load_many
        found = await api_many.aget_or_load_many(
            list(by_key), loader, info=True, **self._location, **self._options_of_many(first, by_key)
        )
        return [self._result_or_value(found[key]) for key in keys]

    def _load_each(self, first: tuple[Any, ...], missing: list[str], by_key: dict[str, Any]) -> dict[str, Any]:
        """Call the function for each key, inside the load of that key."""
        loaded = {}
        outer = active_loads.get()
        try:
            for key, stack in zip(missing, stacks_of_keys(len(missing)), strict=True):
                active_loads.set(stack)
                loaded[key] = self.function(*first, *_arguments(by_key[key]))
        finally:
            active_loads.set(outer)
        return loaded

    def _keys(self, first: tuple[Any, ...], calls: list[Any]) -> list[str]:
        return [self.key((*first, *_arguments(call)), {}) for call in calls]

    def _loader(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any]:
        function = self.function

        def load() -> Any:
            return function(*args, **kwargs)

        async def aload() -> Any:
            return await function(*args, **kwargs)

        return aload if self.asynchronous else load

    def _refuse_async(self, alternative: str) -> None:
        if self.asynchronous:
            raise TypeError(f"{self.label} is asynchronous: await its .{alternative}()")


def _unescaped(field: Field, names: Mapping[str, Any]) -> str:
    """Fill a field of a group's name as an f-string would: callers of ``invalidate(groups=...)`` write the name."""
    return unquote(field.fill(names))


def _looks_like_class_method(function: Any) -> bool:
    """Whether a function will become a class method, by its name and first parameter."""
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    code = getattr(function, "__code__", None)
    return bool(owner and not owner.endswith("<locals>") and code is not None and code.co_varnames[:1] == ("cls",))


def _arguments(call: Any) -> tuple[Any, ...]:
    return call if type(call) is tuple else (call,)


def _by_key(values: Any, missing: list[str], by_key: dict[str, Any]) -> dict[str, Any]:
    return {key: values[by_key[key]] for key in missing if by_key[key] in values}


async def _gather(loads: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Run each of these coroutines in a task of its own, inside the load of its key."""
    contexts = []
    for stack in stacks_of_keys(len(loads)):
        contexts.append(copy_context())
        contexts[-1].run(active_loads.set, stack)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(load, context=each) for load, each in zip(loads, contexts, strict=True)]
    except BaseExceptionGroup as group_error:
        raise group_error.exceptions[0] from None
    return [task.result() for task in tasks]

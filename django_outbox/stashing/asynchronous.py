"""
The writing calls for async code: `await astash(...)` and its like.

Each runs on the thread of Django's own async calls, so that it is in the
transaction that was opened there. They take the arguments of the call that
they are named after.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async

from .series import discard_series, open_series, release_series
from .writing import stash, stash_many

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _awaited(call: Callable[_P, _R]) -> Callable[_P, Coroutine[Any, Any, _R]]:
    """Make the async twin of a call, under its name with an "a" before it."""

    @wraps(call)
    async def twin(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        return await sync_to_async(call, thread_sensitive=True)(*args, **kwargs)

    twin.__name__ = twin.__qualname__ = f"a{call.__name__}"
    twin.__module__ = __name__
    return twin


astash = _awaited(stash)
astash_many = _awaited(stash_many)
aopen_series = _awaited(open_series)
arelease_series = _awaited(release_series)
adiscard_series = _awaited(discard_series)

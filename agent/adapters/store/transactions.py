"""Methods that are a transaction of their own, or a part of the one that their caller has open."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

Transaction = Callable[[], AbstractContextManager[None]]
"""Opens a transaction of the store, or joins the one that is open; see :meth:`SqliteStore.transaction`."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class _Part(Protocol):
    @property
    def _transaction(self) -> Transaction: ...


_PartT = TypeVar("_PartT", bound=_Part)


def in_transaction(
    method: Callable[Concatenate[_PartT, _P], _T],
) -> Callable[Concatenate[_PartT, _P], _T]:
    """Commit what the method writes before it returns; an exception undoes all of it."""

    @wraps(method)
    def commit(self: _PartT, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with self._transaction():
            return method(self, *args, **kwargs)

    return commit

"""Lists: which rows of one are asked for, and how they are fetched as they are looked at (keyset paging)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from sqlalchemy import ColumnElement, Connection, CursorResult, Select, and_, or_

Row_co = TypeVar("Row_co", covariant=True)


class Rows(Protocol[Row_co]):
    """Rows that are fetched as they are looked at."""

    def __iter__(self) -> Iterator[Row_co]: ...

    def close(self) -> None:
        """No more of them are needed."""


@dataclass(frozen=True, slots=True)
class Window:
    """Which rows of a list are asked for.

    Attributes:
        limit: so many rows at most.
        ascending: the order.
        after: the sort values of the last row before these; None begins at the list's beginning.
    """

    limit: int
    ascending: bool
    after: tuple[int, ...] | None


def stream(connection: Connection, statement: Select[Any]) -> CursorResult[Any]:
    """The rows of a statement, of which no more are in memory than are looked at; whoever looks at them closes it."""
    return connection.execute(statement)


def fetch(connection: Connection, statement: Select[Any], window: Window, *order: ColumnElement[Any]) -> Rows[Any]:
    """The rows of a window, and one more that says whether further ones follow.

    Args:
        connection: to read from.
        statement: all rows of the list.
        window: which of them.
        order: what the list is sorted by; together unique.
    """
    return stream(connection, within(statement, window, *order))


def within(statement: Select[Any], window: Window, *order: ColumnElement[Any]) -> Select[Any]:
    """The statement of :func:`fetch`."""
    if window.after is not None:
        statement = statement.where(_beyond(order, window.after, ascending=window.ascending))
    sorted_by = order if window.ascending else [column.desc() for column in order]
    return statement.order_by(*sorted_by).limit(window.limit + 1)


def _beyond(order: Sequence[ColumnElement[Any]], place: Sequence[int], *, ascending: bool) -> ColumnElement[bool]:
    first, value = order[0], place[0]
    further = first > value if ascending else first < value
    if len(order) == 1:
        return further
    # The first condition is implied by the second; it lets the index skip to the place.
    reached = first >= value if ascending else first <= value
    return and_(reached, or_(further, and_(first == value, _beyond(order[1:], place[1:], ascending=ascending))))

"""What the groups of calls share: how a request body is written and an answer is read as a record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from pydantic import AliasChoices

from agent.errors import InvalidMessage, UnexpectedAnswer
from agent.wire.answers import Answer
from agent.wire.base import JsonObject, Received, Sent
from agent.wire.connection import Connection
from agent.wire.json_text import encode_json
from agent.wire.limits import PAGE_MAX
from agent.wire.times import to_rfc3339

Record = TypeVar("Record", bound=Received)
Query = Mapping[str, str | int | None]

_ENVELOPES: Final = ("data", "result", "item", "record")


class Calls:
    """The base of the groups: one connection, and the readers of answers."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def _write(
        self,
        method: str,
        path: str,
        body: Sent | list[JsonObject] | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> Answer:
        """One writing request."""
        content = None
        if body is not None:
            content = encode_json(body.to_wire() if isinstance(body, Sent) else body)
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        return self.connection.request(method, path, body=content, headers=headers)

    def _list(
        self, model: type[Record], path: str, query: Query | None = None, limit: int | None = None
    ) -> Iterator[Record]:
        """The records of a list, page by page, ``limit`` of them at most.

        Raises:
            UnexpectedAnswer: a record does not have the shape; those before it have been handed out.
        """
        params = given(query or {})
        if limit is not None:
            if limit < 1:
                raise InvalidMessage("limit must be at least 1")
            params["limit"] = min(limit, PAGE_MAX)
        return self._records(model, path, params, limit)

    def _records(
        self, model: type[Record], path: str, params: dict[str, str | int], limit: int | None
    ) -> Iterator[Record]:
        count = 0
        for answer, page in self.connection.pages(path, params):
            for item in page.items:
                yield _receive(model, item, answer)
                count += 1
                if count == limit:
                    return

    def _get(self, model: type[Record], path: str, word: str, query: Query | None = None) -> Record:
        """One record that is read."""
        return read_record(model, self.connection.request("GET", path, params=given(query or {})), word)


def read_record(model: type[Record], answer: Answer, word: str, sent: JsonObject | None = None) -> Record:
    """The record in an answer: bare, in an envelope (``data``, or by its ``word``), or alone in an array.

    The specification leaves the answers of most writing endpoints open (rule E2). So with ``sent``, what we know
    already, a 2xx is a success whatever its body: what the answer lacks is taken from ``sent``. Taking its shape for a
    failure would send the same thing again for ever.

    Raises:
        UnexpectedAnswer: nothing was ``sent``, and the body is not JSON or there is no such record in it.
    """
    value = answer.json() if sent is None else answer.json_or_none()
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if sent is None:
        return _receive(model, _unwrap(model, value, word) if isinstance(value, dict) else value, answer)
    if isinstance(value, dict):
        with suppress(InvalidMessage):
            stated = _unwrap(model, value, word)
            return model.receive({**_not_repeated(model, sent, stated), **stated})
    return _receive(model, sent, answer)


def given(query: Query) -> dict[str, str | int]:
    """The query parameters that are given."""
    return {name: value for name, value in query.items() if value is not None}


def time_param(epoch_s: float | None) -> str | None:
    """A time as a query parameter."""
    return None if epoch_s is None else to_rfc3339(epoch_s)


def _unwrap(model: type[Record], value: dict[str, Any], word: str) -> dict[str, Any]:
    if value.keys() & model.model_fields.keys() - {word}:
        return value
    for name in (word, *_ENVELOPES):
        inner = value.get(name)
        if isinstance(inner, list) and len(inner) == 1:
            inner = inner[0]
        if isinstance(inner, dict):
            return inner
    return value


def _not_repeated(model: type[Record], sent: JsonObject, stated: JsonObject) -> JsonObject:
    """The members of a request that the answer does not repeat, under their own name or an alias."""
    fields = model.model_fields
    aliases = {name: fields[name].validation_alias for name in sent if name in fields}
    return {
        name: value
        for name, value in sent.items()
        if not (isinstance(choices := aliases.get(name), AliasChoices) and stated.keys() & set(choices.choices))
    }


def _receive(model: type[Record], value: object, answer: Answer) -> Record:
    try:
        return model.receive(value)
    except InvalidMessage as exc:
        raise UnexpectedAnswer(
            f"{answer.source} answered something that is no {model.__name__}: {exc}", answer.status
        ) from None

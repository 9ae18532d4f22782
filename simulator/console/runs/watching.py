"""``/_emulator/runs/{id}/events``: a run as it goes on, as server-sent events (WHATWG HTML, section 9.2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from pydantic_core import to_json

from agent.errors import StorageError
from simulator.console.runs.progress import Progress, ProgressLine
from simulator.console.runs.records import RunShown, RunState
from simulator.console.runs.runs import STREAMS_MAX, Runs
from simulator.service.answers import Answer
from simulator.service.call import Call
from simulator.service.errors import Conflict, NotFound, TooManyStreams
from simulator.service.waiting import hold

MEDIA_TYPE: Final = "text/event-stream"
HEARTBEAT_S: Final = 15.0
_LOOK_S: Final = 0.5
_STATE_EVERY: Final = 4
"""Looks at the file from one look at the run itself to the next."""
_PLACE_DIGITS: Final = 15
_OVER: Final = frozenset({RunState.ENDED, RunState.KILLED, RunState.NEVER_BEGAN, RunState.UNREADABLE})
_EVENTS: Final = (b"content-type", MEDIA_TYPE.encode())
_HEADERS: Final = ((b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"))


async def watch(runs: Runs, call: Call) -> Answer:
    """The progress of a run so far and from now on, and the run itself whenever its state changes.

    Raises:
        NotFound: there is no such run.
        Conflict: ``not_watchable``: nobody writes its progress down.
        TooManyStreams: too many watch already.
    """
    call.query(frozenset())
    shown = await runs.show(call.path("id"))
    if not shown["live"] and not shown["started_here"]:
        text = (
            "This run's progress is not written down: give 'fleet-simulator run' the option --progress with the file "
            "progress.jsonl in the run's folder."
        )
        raise Conflict("not_watchable", text)
    if call.scope["method"] == "HEAD":
        return Answer(200, b"", _HEADERS, _EVENTS, chunks=_nothing())
    if runs.watchers >= STREAMS_MAX:
        raise TooManyStreams("too_many_streams", f"{STREAMS_MAX} watch runs already.", retry_after_s=30)
    chunks = _stream(runs, call, shown)
    await anext(chunks)  # from here on it is counted, and it leaves by itself whatever becomes of the answer
    return Answer(200, b"", _HEADERS, _EVENTS, chunks=chunks)


async def _nothing() -> AsyncGenerator[bytes]:
    return
    yield


async def _stream(runs: Runs, call: Call, shown: RunShown) -> AsyncGenerator[bytes]:
    runs.watchers += 1
    try:
        yield b""
        progress = Progress(runs.folder.path / shown["id"])
        yield b"retry: 1000\n\n" + _state(shown)
        yield b"".join(map(_event, await asyncio.to_thread(progress.catch_up, _since(call))))
        looks, silent_s = 0, 0.0
        while shown["state"] not in _OVER:
            if not await hold(runs.closing, call.receive, _LOOK_S) or runs.closing.done():
                return
            looks += 1
            lines = await asyncio.to_thread(progress.news)
            is_over = any(line.event == "end" for line in lines)
            before = shown
            if is_over or looks % _STATE_EVERY == 0:
                shown = await _show(runs, shown)
            events = [*map(_event, lines), *([_state(shown)] if shown != before else [])]
            silent_s = 0.0 if events else silent_s + _LOOK_S
            if silent_s >= HEARTBEAT_S:
                silent_s = 0.0
                events = [b": still here\n\n"]
            if events:
                yield b"".join(events)
        yield b"".join(map(_event, await asyncio.to_thread(progress.news))) + _over(shown)
    except StorageError as error:
        yield b"event: fault\ndata: %b\n\n" % to_json({"text": str(error)})
    finally:
        runs.watchers -= 1


async def _show(runs: Runs, shown: RunShown) -> RunShown:
    try:
        return await runs.show(shown["id"])
    except NotFound:  # its folder was taken away
        return {**shown, "state": RunState.UNREADABLE, "fault": "its folder is gone", "live": False}


def _since(call: Call) -> int:
    """The place that the watcher has everything up to."""
    for name, value in call.scope["headers"]:
        if name == b"last-event-id" and value.isdigit() and len(value) <= _PLACE_DIGITS:
            return int(value)
    return 0


def _event(line: ProgressLine) -> bytes:
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (line.end, line.event.encode(), line.data)


def _state(shown: RunShown) -> bytes:
    return b"event: state\ndata: %b\n\n" % to_json(shown)


def _over(shown: RunShown) -> bytes:
    return b"event: over\ndata: %b\n\n" % to_json(shown)

"""``/_emulator/snapshots``: the whole state under a name, to come back to."""

from __future__ import annotations

import contextlib
from typing import Annotated, Final

from pydantic import Field

from agent.wire.base import Sent, Text
from simulator.service.addresses import CONTROL_PREFIX
from simulator.service.answers import NO_CONTENT, Answer, created, ok
from simulator.service.call import Call
from simulator.service.control_records import SnapshotRecord
from simulator.service.endpoints import ERROR, Endpoint, Reply
from simulator.service.errors import NotFound
from simulator.service.paging import whole
from simulator.service.snapshots.folder import Named
from simulator.service.times import show_time
from simulator.service.whole_state import load_from, save_as

_TAG: Final = "control"
_PATH: Final = f"{CONTROL_PREFIX}snapshots"


class SnapshotBody(Sent):
    """A snapshot that is to be saved."""

    name: Annotated[
        Text | None,
        Field(description="1 to 100 letters, digits, dots, hyphens and underscores; made when it is left out."),
    ] = None


async def save_snapshot(call: Call) -> Answer:
    """Save everything that was answered before, while requests are served."""
    body, service = await call.message(SnapshotBody), call.service
    name = body.name or f"snapshot-{service.ids.next()}"
    await save_as(service, name)
    return created(await _show(call, name), f"{_PATH}/{name}")


async def list_snapshots(call: Call) -> Answer:
    """All snapshots, by name."""
    folder = call.service.snapshots

    def show() -> list[SnapshotRecord]:
        found = []
        for name in folder.names():
            with contextlib.suppress(NotFound):  # deleted in this moment
                found.append(_record(folder.show(name)))
        return found

    return whole(await call.service.snapshots.run(show))


async def show_snapshot(call: Call) -> Answer:
    """One snapshot."""
    return ok(await _show(call, call.path("name")))


async def load_snapshot(call: Call) -> Answer:
    """Replace everything by what the snapshot holds: as a whole, or not at all."""
    service, name = call.service, call.path("name")
    await load_from(service, service.snapshots.find(name))
    await call.check_epoch(goes_on=True)
    return ok(await _show(call, name))


async def delete_snapshot(call: Call) -> Answer:
    """Delete the snapshot's file."""
    call.service.snapshots.delete(call.path("name"))
    return NO_CONTENT


async def _show(call: Call, name: str) -> SnapshotRecord:
    return _record(await call.service.snapshots.run(lambda: call.service.snapshots.show(name)))


def _record(found: Named) -> SnapshotRecord:
    header = found.header
    clock = None if header is None else header.clock
    return {
        "name": found.name,
        "file": str(found.path),
        "size_bytes": found.size_bytes,
        "made_at": None if header is None else show_time(header.made_ms),
        "clock": None
        if clock is None
        else {"mode": clock.mode.value, "time": show_time(clock.now_ms), "rate": clock.rate},
        "fault": found.fault,
    }


_NO_SNAPSHOT: Final = Reply(404, "`snapshot_not_found`", ERROR)

ENDPOINTS: Final = (
    Endpoint(
        "POST",
        _PATH,
        save_snapshot,
        "save_snapshot",
        "Save the whole state under a name, while requests are served",
        _TAG,
        (
            Reply(201, "The snapshot", SnapshotRecord, located=True),
            Reply(400, "The name cannot be one", ERROR),
            Reply(409, "`snapshot_exists`: the name is taken; `snapshot_limit_reached`", ERROR),
            Reply(503, "`snapshot_not_saved`: it cannot be written; the storage cannot be read", ERROR),
        ),
        body=(SnapshotBody,),
        public=True,
    ),
    Endpoint(
        "GET",
        _PATH,
        list_snapshots,
        "list_snapshots",
        "All snapshots, by name",
        _TAG,
        (Reply(200, "All of them", SnapshotRecord, listed=True),),
        public=True,
    ),
    Endpoint(
        "GET",
        f"{_PATH}/{{name}}",
        show_snapshot,
        "show_snapshot",
        "One snapshot",
        _TAG,
        (Reply(200, "The snapshot", SnapshotRecord), _NO_SNAPSHOT),
        public=True,
    ),
    Endpoint(
        "DELETE",
        f"{_PATH}/{{name}}",
        delete_snapshot,
        "delete_snapshot",
        "Delete a snapshot",
        _TAG,
        (Reply(204, "Done"), _NO_SNAPSHOT),
        public=True,
    ),
    Endpoint(
        "POST",
        f"{_PATH}/{{name}}/load",
        load_snapshot,
        "load_snapshot",
        "Replace the whole state by a snapshot, with the clock that it was saved with",
        _TAG,
        (
            Reply(200, "The snapshot that is the state now", SnapshotRecord),
            Reply(400, "`invalid_snapshot`: the file cannot be loaded; everything is as it was", ERROR),
            _NO_SNAPSHOT,
            Reply(503, "The storage cannot be written; everything is as it was", ERROR),
        ),
        public=True,
    ),
)

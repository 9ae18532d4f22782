"""``/_emulator/health``, ``reset`` and ``snapshots``: the whole state, emptied, saved under a name and brought back."""

from __future__ import annotations

import contextlib
import hashlib
import re
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from fastapi import Query
from pydantic import BaseModel, Field, ValidationError
from starlette.responses import Response

from agent.wire.models import Sent
from simulator.service.caller import hash_secret
from simulator.service.clock import ClockMode, ClockState
from simulator.service.control.accounts import OfAccount, account_of_key, add_key, first_account, variant_of
from simulator.service.db import VERSION, one
from simulator.service.errors import ApiError, conflict, invalid, not_found, unavailable
from simulator.service.gate import CONTROL_PREFIX, HEALTH
from simulator.service.http import CallDep, Json, Router, answers, created, no_content
from simulator.service.paging import Page, whole
from simulator.service.times import show_time

if TYPE_CHECKING:
    from simulator.service.service import Service

SNAPSHOTS_MAX: Final = 100
_PATH: Final = f"{CONTROL_PREFIX}snapshots"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_ENDING: Final = ".db"

router = Router("state")


class Health(BaseModel):
    """That the service can read and write."""

    status: Literal["ok"]
    time: str
    uptime_s: float
    schema_: Annotated[str, Field(alias="schema")]


@router.get(HEALTH, response_model=Health, responses=answers(503))
async def show_health(call: CallDep) -> Response:
    """Whether the service can read and write."""
    service = call.service
    try:
        with call.db.write() as sql:
            sql.execute("SELECT 1 FROM accounts LIMIT 1").fetchone()
    except sqlite3.Error as exc:
        raise unavailable("storage_unavailable", f"The storage cannot be read: {exc}.", 1) from None
    uptime_s = (call.now_ms - service.started_ms) / 1000
    return Json({"status": "ok", "time": show_time(call.now_ms), "uptime_s": uptime_s, "schema": str(VERSION)})


@router.post(f"{CONTROL_PREFIX}reset", status_code=204, responses=answers(404))
async def reset(call: CallDep, query: Annotated[OfAccount, Query()]) -> Response:
    """Delete everything but accounts and keys, or what one account has; quotas begin anew, faults are deleted."""
    service, account = call.service, account_of_key(call.db.sql, query.api_key)
    async with service.timers.moving:
        service.reset(account)
    await call.db.committed()
    service.faults.clear(account)
    service.requests.clear(account)
    return no_content()


# --- snapshots ----------------------------------------------------------------------------------------------------


class NewSnapshot(Sent):
    """A snapshot that is to be saved."""

    name: Annotated[
        str | None,
        Field(description="1 to 100 letters, digits, dots, hyphens and underscores; made when it is left out."),
    ] = None


class Snapshot(BaseModel):
    """A snapshot: a file, and when it was written by the machine's clock."""

    name: str
    file: str
    size_bytes: int
    made_at: str


@router.post(_PATH, status_code=201, response_model=Snapshot, responses=answers(409))
async def save_snapshot(call: CallDep, body: NewSnapshot) -> Response:
    """Save everything that was answered before under a name, while requests are served."""
    service = call.service
    name = body.name if body.name is not None else f"snapshot-{service.ids.next()}"
    if not _NAME.fullmatch(name):
        raise invalid("name", "must have 1 to 100 letters, digits, dots, hyphens and underscores; no dot at first")
    path = _folder(service) / (name + _ENDING)
    service.flush_seen()
    clock = service.clock.state()
    async with service.saving:  # the name is looked up in here: of several saves at once one has it
        if path.exists():
            issue = f"there is a snapshot {name!r} already: delete it, or take another name"
            raise conflict("snapshot_exists", f"name: {issue}.", [("name", issue)])
        if len(_names(service)) >= SNAPSHOTS_MAX:
            raise conflict("snapshot_limit_reached", f"There are {SNAPSHOTS_MAX} snapshots: delete one first.")
        try:
            await call.db.aggregate(lambda sql: _save(sql, path, clock))
        except (OSError, sqlite3.Error) as exc:
            text = f"{path} cannot be written: {exc}. Nothing was changed."
            raise unavailable("snapshot_not_saved", text, 1) from None
    return created(_show(service, name), f"{_PATH}/{name}")


@router.get(_PATH, response_model=Page[Snapshot])
async def list_snapshots(call: CallDep) -> Response:
    """All snapshots, by name."""
    return whole(call, [_show(call.service, name) for name in _names(call.service)])


@router.get(f"{_PATH}/{{name}}", response_model=Snapshot, responses=answers(404))
async def show_snapshot(call: CallDep, name: str) -> Response:
    """One snapshot."""
    return Json(_show(call.service, name))


@router.delete(f"{_PATH}/{{name}}", status_code=204, responses=answers(404))
async def delete_snapshot(call: CallDep, name: str) -> Response:
    """Delete a snapshot."""
    _find(call.service, name).unlink()
    return no_content()


@router.post(f"{_PATH}/{{name}}/load", response_model=Snapshot, responses=answers(404))
async def load_snapshot(call: CallDep, name: str) -> Response:
    """Replace everything by the snapshot, with the clock that it was saved with; or leave everything as it is."""
    service, path = call.service, _find(call.service, name)
    clock, digest = await call.db.aggregate(lambda sql: (_check(service, sql, path), _digest(path)))
    async with service.timers.moving:
        try:
            service.db.restore(path)
        except sqlite3.Error as exc:
            raise _unfit("file", f"cannot be read: {exc}") from None
        service.clock.restore(clock)
    service.ids.restart(digest)
    with service.db.write() as sql:
        sql.execute("DROP TABLE snapshot")
        own = service.own_keys  # which whoever started the service goes on with
        if own is not None and one(sql, "SELECT 1 FROM api_keys WHERE api_key = ?", (own.api_key,)) is None:
            add_key(sql, first_account(sql), own, call.now_ms)
    service.forget(None)
    return Json(_show(service, name))


def _folder(service: Service) -> Path:
    return service.db.folder / "snapshots"


def _names(service: Service) -> list[str]:
    files = [one for one in _folder(service).glob(f"*{_ENDING}") if one.is_file() and _NAME.fullmatch(one.stem)]
    return sorted(one.stem for one in files)


def _find(service: Service, name: str) -> Path:
    path = _folder(service) / (name + _ENDING)
    if not _NAME.fullmatch(name) or not path.is_file():
        raise not_found("snapshot", name, "on this service")
    return path


def _show(service: Service, name: str) -> dict[str, Any]:
    path = _find(service, name)
    written = path.stat()
    made_at = show_time(round(written.st_mtime * 1000))
    return {"name": name, "file": str(path), "size_bytes": written.st_size, "made_at": made_at}


def _save(sql: sqlite3.Connection, path: Path, clock: ClockState) -> None:
    """Copy all that is committed; the file has its name once it is whole."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        part.unlink(missing_ok=True)
        part.touch(mode=0o600)
        with contextlib.closing(sqlite3.connect(part, isolation_level=None)) as copy:
            sql.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
            copy.execute("CREATE TABLE snapshot (mode TEXT, now_ms INTEGER)")
            copy.execute("INSERT INTO snapshot VALUES (?, ?)", (clock.mode.value, clock.now_ms))
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def _check(service: Service, sql: sqlite3.Connection, path: Path) -> ClockState:
    """Refuse a file that the service could not go on with: nothing is replaced before it is known to fit.

    Raises:
        ApiError: 400 ``invalid_snapshot``: it is none, damaged, or of another release.
    """
    address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    with contextlib.closing(sqlite3.connect(address, uri=True)) as copy:
        try:
            mode, now_ms = copy.execute("SELECT mode, now_ms FROM snapshot").fetchone()
            clock = ClockState(ClockMode(mode), int(now_ms))
            if copy.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
                raise _unfit("file", "is damaged")
            if copy.execute("PRAGMA user_version").fetchone()[0] != VERSION or _schema(copy) != _schema(sql):
                raise _unfit("schema", "is of another release")
            keys = dict(copy.execute("SELECT api_key, secret_hash FROM api_keys").fetchall())
            copy.row_factory = sqlite3.Row
            for row in copy.execute("SELECT variant FROM accounts WHERE variant IS NOT NULL"):
                variant_of(row)
        except ValidationError:
            raise _unfit("accounts", "have a variant that this release does not know") from None
        except (sqlite3.Error, TypeError, ValueError):
            raise _unfit("file", "is damaged, or no snapshot of this service") from None
    if not keys:
        raise _unfit("api_keys", "is empty: without keys nobody could come in")
    own = service.own_keys
    own_hash = None if own is None else hash_secret(own.secret_key.reveal())
    if own is not None and own_hash is not None and keys.get(own.api_key, own_hash) != own_hash:
        raise _unfit("api_keys", f"has {own.api_key} with another secret than this service was started with")
    return clock


def _schema(sql: sqlite3.Connection) -> list[tuple[str, ...]]:
    query = "SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite%' AND name <> 'snapshot' ORDER BY name"
    return [tuple(row) for row in sql.execute(query)]


def _digest(path: Path) -> str:
    """Ids that are made after a load differ from those that the snapshot holds."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unfit(field: str, issue: str) -> ApiError:
    text = f"The snapshot cannot be loaded: {field} {issue}."
    return ApiError(400, "invalid_snapshot", text, details=[(field, issue)])

"""``/_emulator/requests/{logged_id}/replay``: a logged request, sent again inside the service.

The log has no secrets, so nobody could send the request as it was. It comes from whom the first one came from, without
a look at keys, counts for the quota, is answered by the account's profile, and meets no faults: what is wanted is the
service's answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from starlette.types import Message, Scope

from agent.wire import paths
from simulator.service.answers import ok
from simulator.service.call import Call
from simulator.service.endpoints import ERROR, Endpoint, Reply
from simulator.service.errors import Conflict
from simulator.service.request_log.curl import CannotRepeatError, check_whole
from simulator.service.request_log.entry import Entry
from simulator.service.request_log.logged_paths import PARTNER_ACCESS
from simulator.service.request_log.recording import AS_CALLER, REPLAY_OF
from simulator.service.request_log.records import LoggedRequestRecord
from simulator.service.routes.control_requests import PATH, find_entry, show_entry

if TYPE_CHECKING:
    from simulator.service.answers import Answer
    from simulator.service.service import Service

_KEYS: Final = frozenset({b"x-secret-key", b"authorization"})
_LENGTHS: Final = frozenset({b"content-length", b"transfer-encoding"})


async def replay(call: Call) -> Answer:
    """Send a logged request again; the answer is the request as it stands in the log now."""
    entry, service = find_entry(call), call.service
    try:
        _check(service, entry)
    except CannotRepeatError as exc:
        raise Conflict("request_not_repeatable", f"It cannot be sent again: {exc}.") from None
    made = await send_again(call, entry)
    return ok(show_entry(service, made))


def _check(service: Service, entry: Entry) -> None:
    """Whether sending it again means the same as sending it did.

    Raises:
        CannotRepeatError: it does not.
    """
    check_whole(entry)
    if entry.path in PARTNER_ACCESS:
        raise CannotRepeatError("codes, tokens and forms of partner access are good once, and the log has none of them")
    if entry.has_secrets:
        raise CannotRepeatError("its path, query or body held a secret, which its curl line asks for")
    if entry.template == paths.COMMAND_EVENTS:
        raise CannotRepeatError("the answer is a stream without end")
    if entry.caller is None:
        if entry.faults and any(name in _KEYS for name, _ in entry.headers):
            raise CannotRepeatError("a fault answered it before its keys were looked at; its curl line asks for them")
    elif entry.caller.scopes is None and entry.caller.api_key.encode() not in service.callers:
        raise CannotRepeatError(f"the key {entry.caller.api_key} is no longer good")


async def send_again(call: Call, entry: Entry) -> Entry:
    """Send it through the service as if it had come from outside, from the same account; the new entry."""
    recorder = call.service.recorder
    if recorder is None:
        raise RuntimeError("a request was found in a log, and nothing records any")
    is_sent = False

    async def receive() -> Message:
        nonlocal is_sent
        if is_sent:
            return await call.receive()  # who asked for it goes: so does the caller of a held poll
        is_sent = True
        return {"type": "http.request", "body": entry.body, "more_body": False}

    async def send(_message: Message) -> None:
        """The log has what the answer is."""

    scope: Scope = {
        "type": "http",
        "asgi": call.scope["asgi"],
        "http_version": "1.1",
        "scheme": call.scope["scheme"],
        "server": call.scope["server"],
        "client": call.scope["client"],
        "root_path": "",
        "state": {},
        "method": entry.method,
        "path": unquote(entry.path),
        "raw_path": entry.path.encode("latin-1"),
        "query_string": entry.query,
        "headers": [
            *((name, value) for name, value in entry.headers if name not in _LENGTHS),
            *([(b"content-length", b"%d" % len(entry.body))] if entry.body else []),
        ],
        REPLAY_OF: entry.seq,
    }
    if entry.caller is not None:
        scope[AS_CALLER] = entry.caller
    return await recorder.send_through(scope, receive, send)


ENDPOINTS: Final = (
    Endpoint(
        "POST",
        f"{PATH}/{{logged_id}}/replay",
        replay,
        "replay_request",
        "Send a request again, from the same account without its keys; an `Idempotency-Key` goes along",
        "control",
        (
            Reply(200, "The request that was sent now, with its answer", LoggedRequestRecord),
            Reply(404, "`request_not_found`: it is not in the log, or no longer", ERROR),
            Reply(409, "`request_not_repeatable`: it cannot be sent again as it was; or `request_log_off`", ERROR),
        ),
        public=True,
    ),
)

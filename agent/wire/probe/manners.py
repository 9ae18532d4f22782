"""How a server speaks HTTP: clock, quota, connections, encoding; read from the answers that came for other reasons."""

from __future__ import annotations

from typing import Final

from agent.wire.probe.line import Seen
from agent.wire.probe.notes import Notes, is_json
from agent.wire.probe.shapes import content_kind, retry_after_form
from agent.wire.rate_limit import read_rate_limit

_AGREES_S: Final = 5.0
_MANY: Final = 4
_MARK: Final = b"\xef\xbb\xbf"


def probe_conventions(notes: Notes) -> None:
    """Judge all answers so far; makes no requests."""
    answers = [seen for seen in notes.line.seen if seen.status]
    _clock(notes)
    _quota(notes, answers)
    _connections(notes, answers)
    good = [seen for seen in answers if seen.is_good and seen.has_body and is_json(seen)]
    if not good:
        notes.unseen("transport", "content_type", "no answer with JSON")
        return
    kind = content_kind(good[0])
    content_type = good[0].headers.get("content-type", "none")
    notes.note("transport", "content_type", kind, f"Content-Type of JSON: {content_type}")
    packed = [seen for seen in answers if "gzip" in seen.headers.get("content-encoding", "")]
    encoding = "on_request" if packed else "identity"
    if any(not seen.may_pack for seen in packed):
        encoding = "gzip"
    words = {"gzip": "always compressed", "on_request": "compressed where the request allows it", "identity": "plain"}
    notes.note("transport", "encoding", encoding, f"bodies are {words[encoding]}")
    has_mark = any(seen.content.startswith(_MARK) for seen in good)
    if has_mark:
        notes.note("transport", "byte_order_mark", "present", "JSON begins with a byte order mark")


def _clock(notes: Notes) -> None:
    clock = notes.line.clock
    if clock is None:
        loss = "the agent's clock cannot be compared with the server's: a wrong one goes unnoticed"
        notes.note("times", "date", "absent", "answers have no Date header", loss)
        return
    offset_s = round(clock[0] - clock[1])
    way = "ahead of" if offset_s > 0 else "behind"
    agrees = abs(offset_s) <= _AGREES_S
    words = "agrees with this machine's clock" if agrees else f"is {abs(offset_s)} s {way} this machine's clock"
    loss = "" if agrees else "one of the two clocks is wrong: the agent goes by the server's"
    notes.note("times", "date", "present" if agrees else "differs", f"Date {words}", loss)


def _quota(notes: Notes, answers: list[Seen]) -> None:
    limits = [limit for seen in answers if (limit := read_rate_limit(seen.headers)) is not None]
    if limits:
        limit = limits[0]
        many = "?" if limit.limit is None else str(limit.limit)
        words = f"{many} requests in {limit.window_s or 60:.0f} s, by its headers"
        notes.note("quota", "quota_headers", "present", words)
    elif answers:
        notes.note("quota", "quota_headers", "absent", "answers say nothing of the quota")
    if notes.line.limited is None:
        notes.unseen("quota", "retry_after", "the quota was not used up, so no 429 was seen")
        return
    form = retry_after_form(notes.line.limited)
    loss = "" if form in {"seconds", "date"} else "how long to wait is guessed"
    notes.note("quota", "retry_after", form, f"429 with Retry-After: {form}", loss)


def _connections(notes: Notes, answers: list[Seen]) -> None:
    sent, opened = len(answers), notes.line.opened
    if sent < _MANY or not opened:
        notes.unseen("transport", "connection", "too few answers")
    elif opened * 2 <= sent:
        notes.note("transport", "connection", "keep_alive", f"{sent} requests opened {opened} connection(s)")
    else:
        endless = [seen for seen in answers if not {"content-length", "transfer-encoding"} & set(seen.headers)]
        word = "until_close" if len(endless) * 2 > sent else "close"
        loss = "each request makes a new connection, which costs time and, over TLS, data"
        notes.note("transport", "connection", word, f"{sent} requests opened {opened} connection(s)", loss)
    bodies = [seen for seen in answers if seen.has_body]
    if bodies:
        pieces = sum("chunked" in seen.headers.get("transfer-encoding", "") for seen in bodies)
        is_chunked = pieces * 2 > len(bodies)
        words = "bodies come in chunks" if is_chunked else "bodies come with their length"
        notes.note("transport", "framing", "chunked" if is_chunked else "content_length", words)

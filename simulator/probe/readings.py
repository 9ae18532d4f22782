"""What a server does with readings: with a time, with members it does not know, and sent twice."""

from __future__ import annotations

from typing import Any, Final

from agent.errors import InvalidMessage, ServiceError
from agent.wire import extensions, paths
from agent.wire.lists import PageWalk
from agent.wire.pages import read_page
from agent.wire.probe.line import NOT_JSON, Seen
from agent.wire.probe.look import want_time_of_reading
from agent.wire.probe.notes import Notes, is_json
from agent.wire.probe.shapes import body_shape
from agent.wire.times import parse_received_time, to_rfc3339

_HOUR_S: Final = 3_600.0
_BODY_WORDS: Final = {
    "record": "the record",
    "success": '{"success": ...} alone',
    "success_data": "success and data",
    "empty_object": "{}",
    "empty": "nothing",
    "text": "text",
    "html": "a web page",
    "other": "other JSON",
}
_TIME_LOST: Final = (
    "readings that waited for the network get the time at which they arrived; "
    "service.dialect.recorded_at_reading keeps the time of reading"
)


class ReadingsProbe:
    """Sends readings of one test device, and reads them back.

    Args:
        notes: of the look that came before.
        device_id: the test device.
        mark: makes the names of readings unique.
        now_s: the server's clock, epoch seconds: a time of reading ahead of it may be refused.
    """

    def __init__(self, notes: Notes, device_id: str, mark: str, now_s: float) -> None:
        self._notes = notes
        self._line = notes.line
        self._device_id = device_id
        self._mark = mark
        self._accepted: dict[str, bool] = {}
        self._recorded_at = float(round(now_s - _HOUR_S))

    def _reading(self, name: str, **more: Any) -> dict[str, Any]:
        return {"device_id": self._device_id, "sensor_data": {f"probe_{self._mark}_{name}": 1.5}, **more}

    def _post(self, name: str, body: dict[str, Any], **headers: str) -> Seen:
        seen = self._line.ask("POST", paths.SENSOR_DATA, body=body, headers=headers)
        self._accepted[name] = seen.is_good or self._accepted.get(name, False)
        return seen

    def send(self) -> None:
        """Send a few readings, each with something else about it."""
        notes = self._notes
        plain = self._post("plain", self._reading("plain"))
        notes.judge("takes_readings", "POST /sensor-data: Body: device_id, sensor_data.", (plain, plain.is_good))
        _note_write(notes, plain)
        if not plain.is_good:
            return
        at = self._post("recorded", self._reading("recorded", recorded_at=to_rfc3339(self._recorded_at)))
        odd = self._post("odd", self._reading("odd", **{f"probe_{self._mark}": True}))
        if odd.status:
            word = "ignored" if odd.is_good else "refused"
            words = f"a body member it does not know: {word} ({odd.status})"
            notes.note("readings", "unknown_member", word, words)
        if at.status and not at.is_good:
            want_time_of_reading(notes)
            notes.note("readings", "recorded_at", "refused", f"recorded_at is refused ({at.status})", _TIME_LOST)
        key = f"probe-{self._mark}"
        again = [self._post("repeated", self._reading("repeated"), **{"Idempotency-Key": key}) for _ in range(2)]
        if again[0].status and not again[0].is_good:
            words = f"a request with an Idempotency-Key is refused ({again[0].status})"
            notes.note("readings", "repeated_reading", "refused", words)
        many = sum(self._accepted.values())
        notes.wrote.append(f"readings of device {self._device_id}: probe_{self._mark}_..., {many} names")
        notes.left.append(f"the readings probe_{self._mark}_... (the specification has no endpoint that removes them)")

    def read_back(self) -> None:
        """Read them back, and judge what became of them."""
        notes = self._notes
        if not self._accepted.get("plain"):
            return
        rows = self._stored_rows()
        if rows is None:
            notes.unseen("readings", "repeated_reading", "stored readings cannot be read")
            return
        found = {name: [row for row in rows if f"probe_{self._mark}_{name}" in _names(row)] for name in self._accepted}
        rule = "GET /sensor-data: Stored readings."
        last = self._line.seen[-1]
        notes.judge(
            "stores_readings", rule, (last, bool(found["plain"])), seen=f"{len(found['plain'])} of 1 reading is listed"
        )
        if not found["plain"]:
            return
        if self._accepted.get("repeated"):
            self._judge_repeated(len(found["repeated"]))
        if self._accepted.get("recorded") and found["recorded"]:
            self._judge_recorded(found["recorded"][0])

    def _stored_rows(self) -> list[Any] | None:
        """Stored readings, the filter and the newest first where the server has them; the first page."""
        query: dict[str, str | int] = {"device_id": self._device_id}
        if self._notes.offers(extensions.LIST_PARAMETERS):
            query["order"] = "desc"
        seen = self._line.get(paths.SENSOR_DATA, query)
        if not seen.is_good:
            seen = self._line.get(paths.SENSOR_DATA)
        rows = _items(seen, "sensor-data")
        if rows is not None and not any(self._mark in str(row) for row in rows):
            walked = self._last_page(seen)
            rows = rows if walked is None else walked
        return rows

    def _last_page(self, seen: Seen) -> list[Any] | None:
        """The readings of up to five further pages, where the first has none of ours."""
        walk = PageWalk(
            paths.SENSOR_DATA, {"device_id": self._device_id}, self._line.url(paths.SENSOR_DATA), pages_max=6
        )
        rows: list[Any] = []
        try:
            page = walk.take(seen.answer())
            for _ in range(5):
                walk.proceed(seen.answer(), page)
                if walk.done:
                    break
                seen = self._line.get(walk.target, walk.params)
                if not seen.is_good:
                    break
                page = walk.take(seen.answer())
                rows += page.items
        except ServiceError:
            return rows or None
        return rows or None

    def _judge_repeated(self, count: int) -> None:
        notes = self._notes
        if count == 1:
            notes.note("readings", "repeated_reading", "once", "sent twice with one Idempotency-Key: stored once")
            self._use(extensions.IDEMPOTENCY_KEY, "what is repeated is stored once")
        elif count:
            loss = "a reading whose answer is lost on the way is sent again and stored twice"
            notes.note(
                "readings", "repeated_reading", "twice", "sent twice with one Idempotency-Key: stored twice", loss
            )

    def _judge_recorded(self, row: Any) -> None:
        times = [value for name, value in _leaves(row) if name in {"recorded_at", "recordedAt", "timestamp"}]
        kept = any(abs(seconds_of(value) - self._recorded_at) < 2 for value in times)
        if kept:
            self._notes.note("readings", "recorded_at", "kept", "recorded_at is stored as it was sent")
            self._notes.unset("recorded_at_reading")
            self._use(extensions.RECORDED_AT, "the time of reading is kept")
        else:
            want_time_of_reading(self._notes)
            self._notes.note("readings", "recorded_at", "ignored", "recorded_at is taken and not stored", _TIME_LOST)

    def _use(self, extension: str, why: str) -> None:
        """The server has an extension that it does not announce."""
        notes = self._notes
        if notes.offers(extension) or notes.dialect.extensions is not None:
            return
        named = next((each for each in notes.settings if each.key == "extensions"), None)
        names = sorted({*(notes.announced or ()), *(named.value if named else ()), extension})  # type: ignore[misc]  # a list of texts
        reason = f"{why}, though it is not announced" if named is None else f"{named.why}; {why}"
        notes.set("extensions", names, reason)


def _note_write(notes: Notes, seen: Seen) -> None:
    if not seen.is_good:
        return
    shape = body_shape(seen)
    loss = "the agent takes it for a success, and proves once that no captive portal answers" if shape == "html" else ""
    notes.note(
        "readings", "write_body", shape, f"body of a successful write: {_BODY_WORDS[shape]} ({seen.status})", loss
    )
    notes.note("readings", "write_status", str(seen.status), f"status of a successful write: {seen.status}")
    if seen.has_body:
        notes.judge("write_bodies_are_json", "All bodies are JSON.", (seen, is_json(seen)))


def _items(seen: Seen, word: str) -> list[Any] | None:
    value = seen.json()
    if not seen.is_good or value is NOT_JSON:
        return None
    try:
        return read_page(value, seen.what, word).items
    except ServiceError:
        return None


def _leaves(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, dict) else []


def _names(row: Any) -> set[str]:
    """Names of readings in a row: its ``sensor_data``, or a name in a column of a flat row."""
    if not isinstance(row, dict):
        return set()
    inner = row.get("sensor_data", row.get("sensorData"))
    flat = {value for value in row.values() if isinstance(value, str)}
    return flat | set(inner if isinstance(inner, dict) else ()) | set(row)


def seconds_of(value: Any) -> float:
    """A time in an answer, epoch seconds; minus infinity when it cannot be read."""
    try:
        return parse_received_time(value)
    except InvalidMessage:
        return float("-inf")

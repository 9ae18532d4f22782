"""The look that changes nothing: some twenty GET requests, none of which can take a command."""

from __future__ import annotations

import secrets
from typing import Final

from agent.wire import extensions, paths
from agent.wire.announcement import read_announcement
from agent.wire.dialect import Dialect
from agent.wire.probe.commands import read_commands
from agent.wire.probe.line import NOT_JSON, Keys, ProbeLine, Seen, unreachable
from agent.wire.probe.listed import UNDECIDED, probe_lists
from agent.wire.probe.manners import probe_conventions
from agent.wire.probe.notes import NEEDS_WRITING, Notes
from agent.wire.probe.shapes import (
    ERROR_WORDS,
    error_shape,
)

_NOT_FOUND: Final = 404
_UNAUTHORIZED: Final = 401


def look(line: ProbeLine, *, device_id: str = "", dialect: Dialect | None = None) -> Notes:
    """Look at a server without changing anything there, and without taking a command from it.

    Args:
        line: makes the requests.
        device_id: the device whose list is looked at where the server announces ``command-status``.
        dialect: what the configuration says of the server.

    Raises:
        TransportError: the server gave no answer at all.
    """
    notes = Notes(line, dialect)
    _discover(notes)
    devices = line.get(paths.DEVICES)
    if devices.status == 0 and not any(seen.status for seen in line.seen):
        raise unreachable(devices)
    _look_for_gateway(notes, devices)
    if not notes.is_gateway:
        probe_lists(notes, devices, device_id)
    _check_credentials(notes, devices, device_id)
    _probe_commands(notes, device_id)
    _probe_errors(notes, device_id)
    _probe_readings(notes)
    if not notes.is_gateway:
        _read_groups(notes)
    probe_conventions(notes)
    return notes


def _discover(notes: Notes) -> None:
    seen = notes.line.get(paths.DISCOVERY)
    if seen.status in UNDECIDED or (seen.status >= 500 and seen.status != 501):
        notes.unseen("server", "extensions", f"not known: {seen.brief()}")
        return
    value = seen.json()
    announcement = read_announcement(None if value is NOT_JSON or not seen.is_good else value)
    notes.announced = announcement.extensions
    notes.found(version=announcement.version or seen.headers.get("server", "")[:100])
    names = sorted(announcement.extensions)
    if not names:
        loss = "no long poll, no arrays of readings, no keys against doubles: more requests, and slower commands"
        notes.note("server", "extensions", "none", f"announces none ({seen.brief()}): a plain server", loss)
        return
    missing = sorted(extensions.ALL - announcement.extensions)
    words = f"announces {', '.join(names)}" + (f"; not {', '.join(missing)}" if missing else "")
    notes.note("server", "extensions", "announced", words)


def _look_for_gateway(notes: Notes, devices: Seen) -> None:
    value = devices.json()
    message = value.get("message") if isinstance(value, dict) else None
    if devices.status == _NOT_FOUND and isinstance(message, str) and message.startswith("The gateway "):
        notes.is_gateway = True
        words = "device-gateway answers, which stands before the server: what follows is the gateway's"
        notes.note("server", "answered_by", "gateway", words)


def _check_credentials(notes: Notes, devices: Seen, device_id: str) -> None:
    line = notes.line
    path = paths.device_commands(device_id or "probe") if notes.is_gateway else paths.DEVICES
    missing = [line.get(path, keys=keys) for keys in (Keys.NONE, Keys.API_KEY_ALONE, Keys.SECRET_KEY_ALONE)]
    names = ("without both", "x-api-key alone", "x-secret-key alone")
    words = ", ".join(f"{name}: {seen.status or seen.fault}" for name, seen in zip(names, missing, strict=True))
    rule = "When either header is missing, the response is 401 with an error body."
    judged = [(seen, seen.status == _UNAUTHORIZED and _has_error(seen)) for seen in missing]
    bodies = {error_shape(seen) for seen in missing if seen.status == _UNAUTHORIZED}
    if bodies - {"complete", "error_alone"}:
        words += f"; body: {', '.join(sorted(bodies))}"
    notes.judge("missing_header_401", rule, *judged, seen=words)
    wrong = line.get(path, keys=Keys.WRONG)
    rule = "When the credentials are invalid, the response is 401."
    notes.judge("invalid_credentials_401", rule, (wrong, wrong.status == _UNAUTHORIZED))
    if wrong.status:
        loss = "" if wrong.status == _UNAUTHORIZED else "wrong keys cannot be distinguished from missing rights"
        notes.note("errors", "wrong_keys", str(wrong.status), f"wrong credentials: {wrong.status}", loss)
    if devices.status == _UNAUTHORIZED:
        notes.note("server", "credentials", "refused", f"the given credentials are refused ({devices.brief()})")


def _has_error(seen: Seen) -> bool:
    return error_shape(seen) in {"complete", "error_alone"}


def _probe_errors(notes: Notes, device_id: str) -> None:
    line = notes.line
    mark = secrets.token_hex(4)
    nowhere = line.get(f"/probe-{mark}")
    if notes.is_gateway:
        path = paths.device_commands(device_id or "probe")
        answers = [nowhere]
    else:
        path = paths.DEVICES
        answers = [nowhere, line.get(paths.product_commands(f"probe-{mark}"))]
    judged = [(_unless_refused(seen), seen.status == _NOT_FOUND) for seen in answers]
    notes.judge("unknown_404", "When the path or the addressed resource does not exist, then 404.", *judged)
    if not notes.is_gateway or notes.offers(extensions.COMMAND_STATUS):
        given = {"status": "in_progress"} if notes.is_gateway else {}
        odd = line.get(path, {**given, f"probe_{mark}": "1"}, gzip=False)
        is_usual = any(seen.is_good and seen.what.startswith(f"GET {path}") for seen in line.seen)
        if is_usual and odd.status not in UNDECIDED:
            word = "ignored" if odd.is_good else "refused"
            words = f"a query parameter it does not know: {word} ({odd.status})"
            notes.note("server", "unknown_parameter", word, words)
    notes.unseen("server", "unknown_parameter", "no answer that shows it")
    if nowhere.status == _NOT_FOUND:
        shape = error_shape(nowhere)
        notes.note("errors", "unknown_path", shape, f"body of the 404 for an unknown path: {_error_words(shape)}")
    if line.limited is not None:
        rule = "When a request exceeds the per-key per-minute rate limit, then 429."
        notes.judge("rate_limit_429", rule, (line.limited, True))
    refused = [seen for seen in line.seen if seen.status >= 400]
    rule = "Errors return a JSON body with error (string) and, often, message (string)."
    shapes = sorted({error_shape(seen) for seen in refused})
    words = f"{len(refused)} errors: {', '.join(_error_words(shape) for shape in shapes)}"
    notes.judge("error_bodies", rule, *((seen, _has_error(seen)) for seen in refused), seen=words if refused else "")
    plain = [error_shape(seen) for seen in refused if seen.status != _NOT_FOUND]
    if plain:
        is_silent = plain[0] in {"html", "text", "empty", "other"}
        loss = "errors say no reason that can be read, so that logs hold the status alone" if is_silent else ""
        notes.note("errors", "error_shape", plain[0], f"body of an error: {_error_words(plain[0])}", loss)


def _error_words(shape: str) -> str:
    return ERROR_WORDS[shape]


def _unless_refused(seen: Seen) -> Seen:
    """Without a word about the path where the credentials are refused."""
    return Seen(seen.what, fault=seen.brief()) if seen.status in UNDECIDED else seen


def _probe_commands(notes: Notes, device_id: str) -> None:
    reason = f"{NEEDS_WRITING}: a list of commands may be handed out once"
    if notes.offers(extensions.COMMAND_STATUS) and device_id:
        # Running commands alone: a server that marks what it lists as delivered marks none by this.
        read_commands(notes, notes.line.get(paths.device_commands(device_id), {"status": "in_progress"}))
        reason = "no command of this device is in progress; " + NEEDS_WRITING
    elif not device_id:
        reason = "no device was named"
    notes.unseen("devices", "registration", "fleet-simulator onboard profile looks at it")
    for name in ("command_id", "status_words", "created_at", "expires_at", "command_order"):
        notes.unseen("commands", name, reason)
    if notes.offers(extensions.COMMAND_STATUS):
        notes.note("commands", "command_list", "status", "status=open lists what is open (announced)")
    else:
        notes.unseen("commands", "command_list", reason)
    if notes.offers(extensions.COMMAND_RESULTS):
        notes.note("results", "results", "endpoint", "an endpoint for results is announced")
    else:
        notes.unseen("results", "results", NEEDS_WRITING)


def _probe_readings(notes: Notes) -> None:
    how = "announced" if notes.dialect.extensions is None else "configured"
    for extension, name, words in (
        (extensions.RECORDED_AT, "recorded_at", "takes recorded_at"),
        (extensions.IDEMPOTENCY_KEY, "repeated_reading", "stores what is repeated under an Idempotency-Key once"),
    ):
        if notes.offers(extension):
            notes.note("readings", name, "announced", f"{words} ({how})")
        else:
            notes.unseen("readings", name, f"not announced; {NEEDS_WRITING}")
    notes.unseen("readings", "unknown_member", NEEDS_WRITING)
    notes.unseen("readings", "write_body", NEEDS_WRITING)
    if notes.announced is not None and not notes.offers(extensions.RECORDED_AT):
        want_time_of_reading(notes)


def want_time_of_reading(notes: Notes) -> None:
    """Say what is lost without ``recorded_at``, and how it is kept."""
    notes.note(
        "readings",
        "recorded_at",
        None,
        f"not announced; {NEEDS_WRITING}",
        "readings that waited for the network get the time at which they arrived; "
        "service.dialect.recorded_at_reading keeps the time of reading",
    )
    if notes.dialect.recorded_at_reading is None:
        why = "keeps the time of reading: adds a reading of this name, epoch seconds, to each sensor_data"
        notes.set("recorded_at_reading", "recorded_at_s", why, only_if_wanted=True)


def _read_groups(notes: Notes) -> None:
    for name, path in (("rules", paths.RULES), ("analytics", paths.DEVICE_ANALYTICS)):
        seen = notes.line.get(path)
        if seen.status:
            there = "yes" if seen.is_good else "no" if seen.status in {404, 405, 501} else str(seen.status)
            notes.note("groups", name, there, seen.brief())
    metadata = notes.line.get(paths.OAUTH_METADATA, keys=Keys.NONE)
    value = metadata.json()
    has_document = metadata.is_good and isinstance(value, dict) and "token_endpoint" in value
    if metadata.status:
        words = "a metadata document (RFC 8414)" if has_document else f"no metadata document ({metadata.status})"
        notes.note("groups", "partner_access", "metadata" if has_document else "none", words)

"""What a server does where the specification states a rule, and where it leaves a choice: few requests, one report."""

from __future__ import annotations

import secrets
import ssl
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

import httpx

from agent.errors import InvalidMessage, ServiceError, TransportError
from agent.wire import paths
from agent.wire.answers import Answer, Page, one_line, read_page
from agent.wire.client import check_base_url
from agent.wire.encoding import parse_received_time, to_rfc3339
from agent.wire.models import ID_NAMES
from agent.wire.network import trust_store
from agent.wire.secret import Credential, redact

HOLDS: Final = "holds"
BROKEN: Final = "BROKEN"
UNKNOWN: Final = "not judged"
_LISTS: Final = {"/devices": "devices", "/products": "products", paths.SENSOR_DATA: "sensor-data"}
_HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Found:
    """One line of the report.

    Attributes:
        topic: of a rule its verdict: :data:`HOLDS`, :data:`BROKEN` or :data:`UNKNOWN`; of a choice ``choice``.
        name: of the rule or choice.
        seen: what the server did.
        setting: for ``service.dialect``, where the agent needs one: ``key: value``.
    """

    topic: str
    name: str
    seen: str
    setting: str = ""


@dataclass(slots=True)
class Probe:
    """One look at one server.

    Args:
        base_url: of the server; nothing is sent elsewhere, and no redirect is followed.
        auth: the credentials.
        timeout_s: patience with one request.
        trust: authorities; None takes the system's.

    Attributes:
        found: the report.
        written: what was written to the server and stays there.

    Raises:
        ConfigurationError: the base URL cannot be used.
    """

    base_url: str
    auth: Credential
    timeout_s: float = 10.0
    trust: ssl.SSLContext | None = None
    found: list[Found] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    _client: httpx.Client = field(init=False)
    _is_refused: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        url = check_base_url(self.base_url)
        trust = (self.trust or trust_store()) if url.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._client = httpx.Client(base_url=url, verify=trust, trust_env=False, timeout=self.timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    @property
    def verdicts(self) -> set[str]:
        """The verdicts of all rules."""
        return {each.topic for each in self.found} - {"choice"}

    def to_json(self) -> dict[str, Any]:
        """The report for a program."""
        return {"base_url": self.base_url, "found": [asdict(each) for each in self.found], "written": self.written}

    def read(self) -> None:
        """Send GET requests alone.

        Raises:
            TransportError: the server cannot be reached.
        """
        answer = self._ask("GET", paths.DEVICES)
        self._is_refused = answer.status_code in {401, 403, 429}
        self._choose(
            "date", "present" if "date" in answer.headers else "absent: the device's own clock has to be right"
        )
        limits = sorted(name.lower() for name in answer.headers if "ratelimit" in name.lower())
        self._choose("quota", ", ".join(limits) or "no RateLimit headers; a 429 says when it is used up")
        self._choose("extensions", self._extensions())
        for path, word in _LISTS.items():
            self._read_list(answer if path == paths.DEVICES else self._ask("GET", path), path, word)
        without = self._ask("GET", paths.DEVICES, auth=None)
        self._judge("missing_header_401", without, without.status_code == httpx.codes.UNAUTHORIZED)
        wrong = {"x-api-key": answer.request.headers.get("x-api-key", ""), "x-secret-key": f"msk_probe_{'0' * 24}"}
        if "authorization" in answer.request.headers:
            wrong = {"authorization": f"Bearer probe_{'0' * 24}"}
        refused = self._ask("GET", paths.DEVICES, auth=None, headers=wrong)
        self._judge("invalid_credentials_401", refused, refused.status_code == httpx.codes.UNAUTHORIZED)
        unknown = self._ask("GET", f"/probe-{secrets.token_hex(4)}")
        self._judge("unknown_404", unknown, unknown.status_code == httpx.codes.NOT_FOUND)
        errors = [each for each in (without, refused, unknown) if each.is_client_error]
        wrong_bodies = [each for each in errors if not _has_error(each)]
        self._judge("error_bodies", (wrong_bodies or errors or [unknown])[0], bool(errors) and not wrong_bodies)

    def write(self, device_id: str) -> None:
        """Send readings, a command and its result for one test device, and read them back.

        Raises:
            TransportError: the server cannot be reached.
        """
        mark = f"probe_{secrets.token_hex(4)}"
        self._write_readings(device_id, mark)
        self._write_command(device_id, mark)

    def _write_readings(self, device_id: str, mark: str) -> None:
        body = {"device_id": device_id, "sensor_data": {mark: 1.5}}
        taken = self._ask("POST", paths.SENSOR_DATA, body)
        self._judge("takes_readings", taken, taken.is_success)
        if not taken.is_success:
            return
        self._judge("write_bodies_are_json", taken, not taken.content.strip() or _json(taken) is not None)
        self.written.append(f"readings {mark}... of device {device_id}, which no endpoint removes")
        recorded_s = time.time() - _HOUR_S
        dated = {"sensor_data": {f"{mark}_dated": 1.5}, "recorded_at": to_rfc3339(recorded_s)}
        is_dated = self._ask("POST", paths.SENSOR_DATA, {**body, **dated}).is_success
        for _ in range(2):
            twice = {**body, "sensor_data": {f"{mark}_twice": 1.5}}
            self._ask("POST", paths.SENSOR_DATA, twice, headers={"Idempotency-Key": f"{mark}-twice"})
        answer = self._ask("GET", f"{paths.SENSOR_DATA}?device_id={device_id}&order=desc")
        if not answer.is_success:
            answer = self._ask("GET", paths.SENSOR_DATA)
        page = _page(answer, "sensor-data")
        rows = [row for row in page.items if mark in str(row)] if page is not None else []
        self._judge("stores_readings", answer, any(f"{mark}_" not in str(row) for row in rows))
        count = sum(f"{mark}_twice" in str(row) for row in rows)
        stored = {1: "stored once", 2: "stored twice: a reading whose answer is lost is there twice"}
        self._choose("idempotency_key", stored.get(count, "cannot be read back"))
        kept = any(f"{mark}_dated" in str(row) and _has_time(row, recorded_s) for row in rows)
        lost = "not kept: readings get the time at which they arrive" if is_dated else "refused"
        self._choose("recorded_at", "kept" if kept else lost, "" if kept else "recorded_at_reading: recorded_at_s")

    def _write_command(self, device_id: str, mark: str) -> None:
        payload = {"command": mark}
        sent = self._ask("POST", paths.SEND_COMMAND, {"device_id": device_id, "command_payload": payload})
        self._judge("takes_commands", sent, sent.is_success)
        if not sent.is_success:
            return
        path = paths.device_commands(device_id)
        answer = self._ask("GET", path)
        page = _page(answer, "commands")
        ours = [item for item in page.items if mark in str(item)] if page is not None else []
        self._judge("lists_commands", answer, bool(ours))
        if not ours:
            return
        item = ours[0]
        id_name = next((name for name in ID_NAMES if item.get(name) is not None), "")
        setting = "" if id_name else "command_id: the.member.that.holds.the.id"
        self._choose("command_id", id_name or "none that is known: ids are derived from the content", setting)
        self._choose("status_words", str(item.get("status", "none")))
        result = {"status": "rejected", "error": "sent by a probe"}
        reported = self._ask("POST", paths.command_result(device_id, str(item.get(id_name, mark))), result)
        if not reported.is_success:
            self.written.append(f"command {mark} of device {device_id}, which stays open")
            self._choose("results", f"no endpoint ({reported.status_code}): the table command_results, or none")
            return
        self._choose("results", f"taken at their commands ({reported.status_code})")
        later = _page(self._ask("GET", path), "commands")
        stays = later is not None and any(mark in str(each) for each in later.items)
        self._choose("command_list", "ended commands stay on it" if stays else "open commands alone")

    def _extensions(self) -> str:
        value = _json(self._ask("GET", paths.DISCOVERY))
        names = value.get("extensions") if isinstance(value, dict) else None
        return ", ".join(map(str, names)) if isinstance(names, list) and names else "none is announced"

    def _read_list(self, answer: httpx.Response, path: str, word: str) -> None:
        page = _page(answer, word)
        self._judge(f"lists_{word.replace('-', '_')}", answer, page is not None)
        if page is None:
            return
        has_next = page.following is not None or page.next_url is not None or "next" in answer.headers.get("link", "")
        more = "and says how to get more" if has_next else "on one page"
        value = _json(answer)
        members = f"with the members {', '.join(value)}" if isinstance(value, dict) else "as an array"
        self._choose(f"list {path}", f"{len(page.items)} items {more}, {members}")

    def _ask(self, method: str, path: str, body: object = None, **options: Any) -> httpx.Response:
        """One request.

        Raises:
            TransportError: no answer came.
        """
        try:
            return self._client.request(method, path.lstrip("/"), json=body, **{"auth": self._sign, **options})
        except httpx.HTTPError as error:
            text = redact(one_line(f"{method} {path}: {error}"))
            raise TransportError(f"{text}: check the address, and whether the server runs") from None

    def _sign(self, request: httpx.Request) -> httpx.Request:
        request.headers.update(self.auth.headers())
        return request

    def _judge(self, name: str, answer: httpx.Response, holds: bool) -> None:
        # Where the credentials given are refused, nothing else can be judged.
        unjudged = self._is_refused and name not in {"missing_header_401", "invalid_credentials_401"}
        topic = HOLDS if holds else UNKNOWN if unjudged else BROKEN
        self._note(topic, name, f"{answer.request.method} {answer.request.url.path}: {answer.status_code}")

    def _choose(self, name: str, seen: str, setting: str = "") -> None:
        self._note("choice", name, seen, setting)

    def _note(self, topic: str, name: str, seen: str, setting: str = "") -> None:
        self.found.append(Found(topic, name, redact(one_line(seen)), setting))


def _json(answer: httpx.Response) -> Any:
    """The body; None when it is no JSON."""
    try:
        return answer.json()
    except ValueError:
        return None


def _page(answer: httpx.Response, word: str) -> Page | None:
    if not answer.is_success:
        return None
    try:
        value = Answer(answer.status_code, answer.headers, answer.content, word).json()
        return read_page(value, f"GET {answer.request.url.path}", word)
    except ServiceError:
        return None


def _has_error(answer: httpx.Response) -> bool:
    value = _json(answer)
    return isinstance(value, dict) and isinstance(value.get("error"), str)


def _has_time(row: Any, wanted_s: float) -> bool:
    for value in row.values() if isinstance(row, dict) else ():
        try:
            if isinstance(value, str | int | float) and abs(parse_received_time(value) - wanted_s) < 1:
                return True
        except InvalidMessage:
            continue
    return False

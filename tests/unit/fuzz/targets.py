"""Every parser that takes bytes from outside: what to call, what it may raise, and what a good input looks like.

Used by hypothesis and by the replay of the corpus (``test_parsers.py``).
A parser that is not in :data:`TARGETS` is not fuzzed: add it here when you write one.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import httpx

from agent.app.status import read_status
from agent.config.load import load_config, parse_layer
from agent.config.yaml_file import parse_yaml
from agent.errors import (
    AgentError,
    ConfigurationError,
    InvalidMessage,
    InvalidQr,
    ServiceError,
    StorageError,
    UnexpectedAnswer,
)
from agent.handlers.base import HandlerFailed
from agent.handlers.executable import json_result
from agent.program import ProgramRun, last_line
from agent.sensors.base import SensorFailed
from agent.sensors.basic import FileSensor, ProgramSensor
from agent.sensors.hwmon import HwmonSensor
from agent.sensors.one_wire import OneWireSensor
from agent.store.store import Store
from agent.wire import encoding, topics
from agent.wire.answers import Answer, Page, PageWalk, read_page, read_retry_after
from agent.wire.client import Connection, read_record
from agent.wire.encoding import parse_received_time, parse_time
from agent.wire.models import BatchAnswer, CommandRecord
from agent.wire.server import Dialect
from agent.wire.signed import (
    SigningKey,
    TrustedKeys,
    parse_body,
    parse_envelope,
    read_public_key,
    read_signing_key,
)
from gateway import mqtt as gateway_messages
from gateway.quota import read_rate_limit
from simulator.labels.pictures import PictureError, load_picture
from simulator.login.errors import SignInFailed
from simulator.login.flow import code_of
from simulator.login.tokens import TokenSet
from simulator.wire.qr import LabelText, encode_label, parse_label
from simulator.wire.qr.keys import LabelSigner, signed_text
from tests.support.fakes import FakeClock
from tests.support.label_pictures import as_bytes, draw_code

MOST_BYTES = 64 * 1024
"""Longer inputs are cut: each parser's own bound is tested where it is."""


@dataclass(frozen=True)
class Target:
    """One parser.

    Attributes:
        parse: takes the raw input.
        errors: what it may raise; anything else is a find.
        examples: good inputs, from which mutations begin.
    """

    name: str
    parse: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    examples: tuple[bytes, ...]

    def run(self, raw: bytes) -> bool:
        """Whether the parser took it; an error that it may not raise comes through."""
        try:
            self.parse(raw[:MOST_BYTES])
        except self.errors:
            return False
        return True


TARGETS: dict[str, Target] = {}


def target(name: str, *examples: bytes, raises: tuple[type[Exception], ...] = ()) -> Callable[..., object]:
    """Register a parser."""

    def register(parse: Callable[[bytes], object]) -> Callable[[bytes], object]:
        TARGETS[name] = Target(name, parse, raises, examples)
        return parse

    return register


def text_of(raw: bytes) -> str:
    """The bytes as text, as headers arrive: every byte is a character."""
    return raw.decode("latin-1")


def headers_of(raw: bytes) -> httpx.Headers:
    """One header per line, ``name: value``."""
    pairs = [line.partition(b":")[::2] for line in raw.split(b"\n")]
    return httpx.Headers([(name.strip(), value.strip()) for name, value in pairs if name.strip().isascii()])


def answer_of(raw: bytes, **headers: str) -> Answer:
    return Answer(200, httpx.Headers(headers), raw, "http://127.0.0.1")


# --- JSON and the messages of the service -----------------------------------------------------------------------------

JSON = (b'{"a":[1,2.5,-3e7,true,null,"\\u00e9\\n"]}', b"[[[[[]]]]]", b'"\xc3\xa4"', b"9223372036854775807")
COMMAND = (
    b'{"data":[{"id":"c1","device_id":"d1","command_payload":{"command":"ping"},"status":"queued",'
    b'"created_at":"2026-01-01T00:00:00.000Z","expires_at":1767225600000}],"next_cursor":null,"has_more":false}'
)


@target("json", *JSON, COMMAND, raises=(InvalidMessage,))
def _json(raw: bytes) -> None:
    value = encoding.parse_json(raw)
    assert encoding.find_fault(value) is None
    assert encoding.parse_json(encoding.encode_json(value)) == value


@target("answer", *JSON, COMMAND, raises=(UnexpectedAnswer,))
def _answer(raw: bytes) -> None:
    answer_of(raw).json()


@target(
    "command list",
    COMMAND,
    b'[{"command_payload":"{\\"command\\":\\"x\\"}","created_at":1}]',
    raises=(UnexpectedAnswer,),
)
def _command_list(raw: bytes) -> None:
    records = []
    for item in read_page(answer_of(raw).json()).items:
        with contextlib.suppress(InvalidMessage):
            records.append(CommandRecord.receive(item, Dialect(command_id_path=("meta", "id"))))
        with contextlib.suppress(InvalidMessage):
            records.append(CommandRecord.receive(item))
    for record in records:
        with contextlib.suppress(InvalidMessage):
            record.to_command("d1")


@target(
    "page",
    COMMAND,
    b'{"data":{"items":[]}}',
    b'{"rows":[1],"page":1,"total_pages":2,"links":[{"rel":"next","href":"?page=2"}]}',
    b'{"commands":{"c":{"command_payload":{}}},"offset":0,"total":5,"next":"http://b.example/"}',
    raises=(UnexpectedAnswer,),
)
def _page(raw: bytes) -> None:
    answer = answer_of(raw)
    walk = PageWalk("/devices/d/commands", {}, httpx.URL("https://a.example/devices/d/commands"))
    walk.proceed(answer, walk.take(answer))
    assert walk.target.startswith(("/", "https://a.example"))


@target("record", b'{"data":{"accepted":1,"errors":[{"index":0,"error":"x"}]}}', raises=(UnexpectedAnswer,))
def _record(raw: bytes) -> None:
    read_record(BatchAnswer, answer_of(raw), "batch")


@target(
    "time",
    b"2026-01-01T00:00:00.123+01:00",
    b"1767225600000",
    b"2016-12-31 23:59:60Z",
    b"Thu, 01 Jan 2026 00:00:00 GMT",
    b"Thu Jan  1 00:00:00 2026",
    b"20260101T0000Z",
    b'{"$date":{"$numberLong":"1767225600000"}}',
    raises=(InvalidMessage,),
)
def _time(raw: bytes) -> None:
    text = text_of(raw)
    for parse in (parse_time, parse_received_time):
        with contextlib.suppress(InvalidMessage):
            parse(text)
    with contextlib.suppress(ValueError, RecursionError):
        parse_received_time(json.loads(raw))


@target(
    "token file",
    b'{"base_url":"https://a.example","client_id":"c","access_token":"t","expires_at":"2026-01-01T00:00:00Z"}',
    raises=(InvalidMessage,),
)
def _token_file(raw: bytes) -> None:
    TokenSet.receive(encoding.parse_json(raw))


# --- headers ----------------------------------------------------------------------------------------------------------

HEADERS = (
    b'RateLimit-Policy: "default";q=1000;w=60\nRateLimit: "default";r=0;t=30\nRetry-After: 5\nDate: x',
    b"RateLimit: r=0;t=30\nX-RateLimit-Limit: 100\nX-RateLimit-Remaining: 5\nX-RateLimit-Reset: 1767225600",
    b"Retry-After: Sun, 06 Nov 1994 08:49:37 GMT\nDate: Sunday, 06-Nov-94 08:49:37 GMT",
    b'RateLimit: limit=100, remaining=50, reset=50\nETag: W/"1"',
    b'Link: </a?cursor=b>; rel="next", <https://b.example/>; rel=prev',
)


@target("quota headers", *HEADERS)
def _quota(raw: bytes) -> None:
    headers = headers_of(raw)
    wait_s = read_retry_after(headers)
    assert wait_s is None or 0 <= wait_s <= 86_400
    limit = read_rate_limit(headers)
    if limit is not None:
        assert limit.reset_s is None or 0 <= limit.reset_s <= 86_400
    answer = Answer(200, headers, b"", "x")
    assert answer.server_time is None or isinstance(answer.server_time, float)
    assert answer.etag is None or answer.etag.isprintable()


@target("link header", *HEADERS, raises=(UnexpectedAnswer,))
def _link(raw: bytes) -> None:
    PageWalk("/list", {}, httpx.URL("https://a.example/list")).proceed(Answer(200, headers_of(raw), b"", "x"), Page([]))


@target(
    "error answer",
    b'\x01\x91{"error":"rate_limit_exceeded","message":"m","details":[{"field":"a","issue":"b"}]}',
    b"\x01\x2eLocation: https://a.example/\n",
    b"\x00\xc8<html>",
    raises=(AgentError,),
)
def _error_answer(raw: bytes) -> None:
    """The first two bytes are the status; what follows is both the headers and the body."""
    status = int.from_bytes(raw[:2])
    Answer(status, headers_of(raw[2:]), raw[2:], "x").raise_for_status()


class _Chunks(httpx.SyncByteStream):
    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def __iter__(self):
        half = len(self._raw) // 2
        yield self._raw[:half]
        yield self._raw[half:]


@target(
    "compressed body",
    b"g" + bytes.fromhex("1f8b08000000000000034b04000000ffff010000ffffb7efdc8301000000"),
    b"i{}",
    raises=(ServiceError,),
)
def _compressed(raw: bytes) -> None:
    encoding = "gzip" if raw[:1] == b"g" else "identity"
    response = httpx.Response(200, headers={"content-encoding": encoding}, stream=_Chunks(raw[1:]))
    transport = httpx.MockTransport(lambda _request: response)
    with Connection("http://a.example", transport=transport, max_answer_bytes=4096) as connection:
        assert len(connection.request("GET", "/x").content) <= 4096


# --- labels and signed commands ---------------------------------------------------------------------------------------


LABEL_SIGNER = LabelSigner.make("hmac-sha256")
LABEL_FORMS = (
    LabelText("0193b2f4-7e5c-7c3a-9b1e-2f6d4a8c0e11", "SN-1"),
    LabelText("p", "SN 1/\u00e9", profile="link", host="onboard.example.com:8443"),
    LabelText("0193b2f4-7e5c-7c3a-9b1e-2f6d4a8c0e11", "SN-1", profile="compact"),
    LabelText("p", "SN-1", profile="compact"),
)


@target(
    "label",
    b'{"v":1,"product_id":"p","device_identifier":"SN-1","sig":"x"}',
    *(encode_label(label).encode() for label in LABEL_FORMS),
    raises=(InvalidQr,),
)
def _label(raw: bytes) -> None:
    text = raw.decode("utf-8", "surrogateescape")
    label = parse_label(text)
    if label.sig is not None or label.profile != "json":
        assert encode_label(label) == text


@target("signed label", *(signed_text(label, LABEL_SIGNER).encode() for label in LABEL_FORMS), raises=(InvalidMessage,))
def _signed_label(raw: bytes) -> None:
    LABEL_SIGNER.key.check(parse_label(raw.decode("utf-8", "surrogateescape")))
    assert raw in TARGETS["signed label"].examples, "a changed label is accepted"


@target(
    "photograph",
    *(as_bytes(draw_code("SIM-000001", 1), kind) for kind in ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP")),
    raises=(PictureError,),
)
def _photograph(raw: bytes) -> None:
    assert load_picture(raw).ndim == 2


_KEY = SigningKey.make()
_TRUSTED = TrustedKeys([_KEY.public_key()])
BODY = (
    b'{"device_id":"d1","id":"o1","counter":7,"expires_at":"2026-01-01T00:00:00.000Z",'
    b'"command_payload":{"command":"ping"}}'
)
ENVELOPE = b'{"signed_command":{"v":1,"key_id":"ed25519-00","body":"{}","signature":"' + b"A" * 86 + b'"}}'


@target("envelope", ENVELOPE, raises=(InvalidMessage,))
def _envelope(raw: bytes) -> None:
    payload = encoding.parse_object(raw)
    parse_envelope(payload)
    _TRUSTED.open(payload)
    raise AssertionError("a made-up signature holds")


@target("signed body", BODY, raises=(InvalidMessage,))
def _signed_body(raw: bytes) -> None:
    parse_body("key", text_of(raw))


@target(
    "key file",
    b"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAIVLzVEFstMGH5rA3L/6Y7OxG2eAAYZqcLvXwZTuDH2I=\n"
    b"-----END PUBLIC KEY-----\n",
    raises=(ConfigurationError,),
)
def _key_file(raw: bytes) -> None:
    path = in_file(raw)
    for read in (read_public_key, read_signing_key):
        with contextlib.suppress(ConfigurationError):
            read(path)


# --- MQTT -------------------------------------------------------------------------------------------------------------


@target("topic", b"v1/devices/d1/commands/c1/result", b"v1/devices/a%2Fb/sensor-data", raises=(InvalidMessage,))
def _topic(raw: bytes) -> None:
    topic = raw.decode("utf-8", "replace")
    found = topics.parse(topic)
    assert found.device_id


@target("mqtt readings", b'[{"recorded_at":"2026-01-01T00:00:00Z","sensor_data":{"t":1.5},"key":"k"}]')
def _mqtt_readings(raw: bytes) -> None:
    gateway_messages.read_readings(raw)


@target("mqtt result", b'{"status":"succeeded","result":{"a":1},"error":"x"}')
def _mqtt_result(raw: bytes) -> None:
    gateway_messages.read_result(raw)


@target("mqtt status", b"online", b'{"status":"offline","firmware_version":"1"}', raises=(InvalidMessage,))
def _mqtt_status(raw: bytes) -> None:
    gateway_messages.read_status(raw)


@target("mqtt receipt", b'{"stored":["k"],"refused":[{"key":"k","error":"x","message":"m"}]}', raises=(InvalidMessage,))
def _mqtt_receipt(raw: bytes) -> None:
    topics.Receipt.receive(encoding.parse_json(raw))


@target("mqtt notice", b'{"time":"2026-01-01T00:00:00Z","retry_after_s":60}', raises=(InvalidMessage,))
def _mqtt_notice(raw: bytes) -> None:
    topics.Notice.receive(encoding.parse_json(raw))


@target("mqtt command", b'{"id":"c","command_payload":{"command":"ping"},"expires_at":1}', raises=(InvalidMessage,))
def _mqtt_command(raw: bytes) -> None:
    CommandRecord.receive(encoding.parse_json(raw)).to_command("d1")


# --- a request to the gateway, and a browser's answer -----------------------------------------------------------------


@target(
    "browser redirect",
    b"http://127.0.0.1:8976/callback?code=c&state=AAAA&iss=https://a.example",
    raises=(SignInFailed,),
)
def _redirect(raw: bytes) -> None:
    code_of(raw.decode("utf-8", "replace"), "AAAA")


# --- configuration, files, the environment ----------------------------------------------------------------------------

_FOLDER = tempfile.TemporaryDirectory(prefix="fuzz-")


def in_file(raw: bytes, name: str = "input") -> Path:
    """The bytes in a file of mode 600."""
    path = Path(_FOLDER.name, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    path.chmod(0o600)
    return path


CONFIG = b"""\
service: {base_url: 'https://a.example', timeout_s: 3}
device: {device_id: d1}
auth: {allow_secret_key_on_device: true, api_key_file: /k, secret_key_file: /s}
commands:
  signing: {mode: off}
sensors:
  - {name: a, type: system, interval_s: 1e1}
"""


@target(
    "yaml",
    CONFIG,
    b"a: [1, 0x1, 1_0, ~, 'x', \"\\u00e9\"]\nb: |\n  text\n",
    b"&a [*a]",
    b"!!python/object:x {}",
    raises=(ConfigurationError,),
)
def _yaml(raw: bytes) -> None:
    parse_yaml(raw.decode("utf-8", "replace"), "text")


@target("configuration", CONFIG, raises=(ConfigurationError,))
def _configuration(raw: bytes) -> None:
    load_config(in_file(raw, "config.yaml"), {})


@target(
    "environment",
    b"SERVICE__BASE_URL=https://a.example\nSENSORS=[{name: a, type: system}]",
    raises=(ConfigurationError,),
)
def _environment(raw: bytes) -> None:
    lines = [line.partition(b"=")[::2] for line in raw.replace(b"\0", b"").split(b"\n")]
    environ = {f"DEVICE_AGENT_{text_of(name)}": text_of(value) for name, value in lines}
    load_config(in_file(CONFIG, "config.yaml"), environ)


@target(
    "status file",
    b'{"state":"running","process_id":1,"version":"1","device_id":"d","started_wall_s":1.0,"written_wall_s":1.0,"boot_id":"b","parts":{"x":{"state":"ok","detail":"","since_wall_s":1.0}},"reason":""}',
)
def _status_file(raw: bytes) -> None:
    read_status(in_file(raw, "status.json"))


@target("configuration layer", b"logging: {level: debug}\n", b"auth: {}", raises=(ConfigurationError,))
def _layer(raw: bytes) -> None:
    parse_layer(raw.decode("utf-8", "replace"), "a command")


@target(
    "store",
    b"SQLite format 3\0" + bytes.fromhex("0400020200402020") + bytes(76),
    b"",
    raises=(StorageError, ConfigurationError),
)
def _store(raw: bytes) -> None:
    """A database file of any content: it opens, or is moved aside, or says why not."""
    with tempfile.TemporaryDirectory(dir=_FOLDER.name) as folder:
        path = Path(folder, "agent.db")
        path.write_bytes(raw)
        with Store(path, clock=FakeClock()):
            pass


# --- programs and sensors ---------------------------------------------------------------------------------------------


@target("executable output", b'{"opened":true}\n', b"", raises=(HandlerFailed,))
def _executable(raw: bytes) -> None:
    run = ProgramRun(0, raw, truncated=False, diagnostics=raw, duration_s=1.0)
    assert len(last_line(raw)) <= 300
    json_result(run, MOST_BYTES)


@target("program sensor", b'{"t":21.5,"gone":null}', raises=(SensorFailed,))
def _program_sensor(raw: bytes) -> None:
    run = ProgramRun(0, raw, truncated=False, diagnostics=b"", duration_s=1.0)
    with patch("agent.sensors.basic.run_program", return_value=run):
        ProgramSensor(ProgramSensor.Settings(argv=("x",))).read()


@target("file sensor", b"23.5 \xc2\xb0C\n", b"1e3", raises=(SensorFailed,))
def _file_sensor(raw: bytes) -> None:
    FileSensor(FileSensor.Settings(path=in_file(raw, "sensor"), reading="x")).read()


@target(
    "one-wire sensor",
    b"a3 01 4b 46 7f ff 0d 10 ce : crc=ce YES\na3 01 4b 46 7f ff 0d 10 ce t=26187\n",
    raises=(SensorFailed,),
)
def _one_wire(raw: bytes) -> None:
    for name in ("w1_slave", "temperature"):
        path = in_file(raw, f"w1-{name}/28-0/{name}")
        OneWireSensor(OneWireSensor.Settings(root=path.parent.parent)).read()


@target("hwmon sensor", b"45000", b"-1", raises=(SensorFailed,))
def _hwmon(raw: bytes) -> None:
    in_file(b"coretemp", "hwmon/hwmon0/name")
    in_file(raw[-20:], "hwmon/hwmon0/temp1_label")
    path = in_file(raw, "hwmon/hwmon0/temp1_input")
    HwmonSensor(HwmonSensor.Settings(root=path.parent.parent)).read()

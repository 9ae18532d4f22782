"""The requests of a probe: few, bounded, to one origin, each answer kept as it came.

:class:`~agent.wire.connection.Connection` turns answers into values and errors; a probe is about what it leaves out.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Self

import httpx

from agent.errors import AgentError, TransportError, UnexpectedAnswer
from agent.frozen import dataclass
from agent.wire.answers import Answer, one_line, read_body, read_retry_after
from agent.wire.auth import Credential, origin_of
from agent.wire.connection import check_base_url
from agent.wire.faults import FAULTS, explain
from agent.wire.identity import is_page
from agent.wire.json_text import encode_json
from agent.wire.lists import Params
from agent.wire.trust import trust_store

REQUESTS_MAX: Final = 45
"""So many requests are sent at most, waits for the quota and repeats included."""
_ANSWER_BYTES: Final = 2 * 1024 * 1024
_ANSWER_S: Final = 30.0
_WAIT_MAX_S: Final = 60.0
_WAITS_MAX: Final = 2
_CONNECT_MAX_S: Final = 5.0
_TOO_MANY: Final = 429
_OPENED: Final = "connection.connect_tcp.complete"
NOT_JSON: Final = object()
"""The value of a body that is no JSON."""


class Keys(StrEnum):
    """Which credentials a request has."""

    GIVEN = "given"
    NONE = "none"
    API_KEY_ALONE = "api_key_alone"
    SECRET_KEY_ALONE = "secret_key_alone"  # noqa: S105 - a name
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Seen:
    """One request and what came back.

    Attributes:
        what: method and path, with the query.
        status: 0 when there was no answer.
        headers: of the answer.
        content: the decoded body.
        fault: why there is no answer, or no body; empty when it is whole.
        may_pack: the request allowed a compressed answer.
    """

    what: str
    status: int = 0
    headers: httpx.Headers = field(default_factory=httpx.Headers)
    content: bytes = b""
    fault: str = ""
    may_pack: bool = True

    @property
    def is_good(self) -> bool:
        """A 2xx that came whole."""
        return 200 <= self.status < 300 and not self.fault

    @property
    def is_page(self) -> bool:
        """The body is a web page."""
        return is_page(self.headers.get("content-type", ""), self.content)

    @property
    def has_body(self) -> bool:
        """Whether the body holds more than white space."""
        return bool(self.content.strip())

    def json(self) -> Any:
        """The body as JSON; :data:`NOT_JSON` when it is something else, or nothing."""
        try:
            value = self.answer().json()
        except UnexpectedAnswer:
            return NOT_JSON
        return value if self.has_body else NOT_JSON

    def answer(self) -> Answer:
        """For the readers of answers."""
        return Answer(self.status, self.headers, self.content, self.what)

    def brief(self) -> str:
        """What was asked and answered, on one line: ``GET /devices: 200``."""
        if self.status == 0:
            return f"{self.what}: no answer ({self.fault})"
        if 300 <= self.status < 400:
            return f"{self.what}: {self.status}, a redirect to {self._target()}, which is not followed"
        return f"{self.what}: {self.status}{f' ({self.fault})' if self.fault else ''}"

    def _target(self) -> str:
        try:
            url = httpx.URL(self.headers.get("location", ""))
        except httpx.InvalidURL:
            return "an unreadable address"
        return f"{url.scheme}://{url.host}" if url.host else "itself"


class ProbeLine:
    """Requests to one base URL, one after the other. Redirects are not followed.

    After a 429 it waits as long as the server asks, up to a minute and twice at most, and sends the request again; then
    nothing more is sent.

    Args:
        base_url: of the server.
        auth: the credentials; None has none.
        timeout_s: for connecting (at most 5 s), and for each wait for the next bytes.
        trust: authorities; None takes the system's.
        transport: replaces the network, for tests.
        sleep: waits that many seconds.
        wall: this machine's clock, epoch seconds.
        monotonic: bounds an answer.

    Raises:
        ConfigurationError: the base URL cannot be used.

    Attributes:
        seen: every exchange, in order.
        opened: how many connections were opened.
        limited: the first 429; None when there was none.
        clock: (server's clock, this machine's clock) from the first answer to the given credentials with a ``Date``.
    """

    def __init__(
        self,
        base_url: str,
        auth: Credential | None,
        *,
        timeout_s: float = 10.0,
        trust: ssl.SSLContext | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], object] = time.sleep,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.base_url = check_base_url(base_url)
        self.origin = origin_of(self.base_url)
        self._auth = None if auth is None else auth.bound_to(self.base_url)
        self._timeout_s = timeout_s
        self._sleep = sleep
        self.wall = wall
        self._monotonic = monotonic
        is_secure = self.base_url.scheme == "https"
        self._client = httpx.Client(
            verify=(trust or trust_store()) if is_secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            trust_env=False,
            follow_redirects=False,
            transport=transport,
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_MAX_S)),
            headers={"User-Agent": "device-agent-probe", "Accept": "application/json"},
        )
        self.seen: list[Seen] = []
        self.opened = 0
        self.limited: Seen | None = None
        self.clock: tuple[float, float] | None = None
        self._sent = 0
        self._waits = 0
        self._stopped = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    @property
    def sent(self) -> int:
        """How many requests were sent."""
        return self._sent

    def url(self, path: str) -> httpx.URL:
        """The absolute URL of a path below the base URL."""
        return httpx.URL(f"{str(self.base_url).rstrip('/')}{path}")

    def get(self, path: str, params: Params | None = None, **options: Any) -> Seen:
        """One GET; see :meth:`ask`."""
        return self.ask("GET", path, params=params, **options)

    def ask(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        keys: Keys = Keys.GIVEN,
        gzip: bool = True,
    ) -> Seen:
        """One request; whatever comes of it is in the value.

        Args:
            method: ``GET``, ``POST`` or ``DELETE``.
            path: below the base URL, or an absolute URL of the same origin.
            params: query parameters.
            body: to be sent as JSON; None sends none.
            headers: beside the usual ones.
            keys: which credentials it has.
            gzip: whether the answer may be compressed.
        """
        url = self.url(path) if path.startswith("/") else httpx.URL(path)
        request = self._client.build_request(
            method,
            url,
            params=dict(params) if params else None,
            content=None if body is None else encode_json(body),
            headers={
                **(headers or {}),
                **({} if body is None else {"Content-Type": "application/json"}),
                "Accept-Encoding": "gzip" if gzip else "identity",
            },
            extensions={"trace": self._trace},
        )
        query = f"?{request.url.query.decode('ascii')}" if request.url.query else ""
        what = one_line(f"{method} {path if path.startswith('/') else request.url.path}{query}")
        if origin_of(url) != self.origin:
            return Seen(what, fault="it is on another host, which is not asked")
        found = self._send(request, keys, what)
        while found.status == _TOO_MANY and not self._stopped and self._wait(found):
            found = self._send(request, keys, what)
        self.seen.append(found)
        return found

    def redact(self, text: str) -> str:
        """The text without the credentials."""
        return text if self._auth is None else self._auth.redact(text)

    def _send(self, request: httpx.Request, keys: Keys, what: str) -> Seen:
        if self._stopped:
            return Seen(what, fault=self._stopped)
        if self._sent >= REQUESTS_MAX:
            self._stopped = f"the probe sends {REQUESTS_MAX} requests at most"
            return Seen(what, fault=self._stopped)
        self._sent += 1
        deadline = self._monotonic() + max(_ANSWER_S, self._timeout_s)

        def check_deadline() -> None:
            if self._monotonic() > deadline:
                raise UnexpectedAnswer("the answer comes too slowly and was cut off")

        began = self.wall()
        auth = None if self._auth is None and keys is Keys.GIVEN else _Changed(self._auth, keys)
        try:
            response = self._client.send(request, auth=auth, stream=True, follow_redirects=False)
            try:
                if keys is Keys.GIVEN:
                    self._note_clock(response, began)
                content, fault = b"", ""
                try:
                    content = read_body(response, _ANSWER_BYTES, check_deadline)
                except UnexpectedAnswer as error:
                    fault = one_line(str(error))
            finally:
                response.close()
        except FAULTS as error:
            return Seen(what, fault=one_line(str(explain(error, self.origin, self._timeout_s, self.redact))))
        except AgentError as error:  # a token that cannot be renewed
            return Seen(what, fault=one_line(self.redact(str(error))))
        may_pack = request.headers["Accept-Encoding"] != "identity"
        found = Seen(what, response.status_code, response.headers, content, fault, may_pack)
        if found.status == _TOO_MANY and self.limited is None:
            self.limited = found
        return found

    def _wait(self, found: Seen) -> bool:
        """Wait as the server asks; False when that is too long, or was done before."""
        seconds = read_retry_after(found.headers)
        if self._waits >= _WAITS_MAX or (seconds or 0.0) > _WAIT_MAX_S:
            self._stopped = "the quota of the key is used up (429)"
            return False
        self._waits += 1
        self._sleep(_WAIT_MAX_S if seconds is None else seconds)
        return True

    def _note_clock(self, response: httpx.Response, began: float) -> None:
        server = Answer(response.status_code, response.headers, b"", "").server_time
        if self.clock is None and server is not None:
            self.clock = (server, (began + self.wall()) / 2)

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        del info
        self.opened += event == _OPENED


class _Changed(httpx.Auth):
    """The credentials with a part missing or wrong; a made-up part where there is no key pair."""

    def __init__(self, auth: Credential | None, keys: Keys) -> None:
        self._auth = auth
        self._keys = keys

    def sync_auth_flow(self, request: httpx.Request) -> Any:
        """The requests to send."""
        if self._keys is Keys.GIVEN and self._auth is not None:
            yield from self._auth.sync_auth_flow(request)
            return
        yield from self._altered(request)

    def _altered(self, request: httpx.Request) -> Iterator[httpx.Request]:
        probe = httpx.Request("GET", request.url)
        if self._auth is not None:
            flow = self._auth.auth_flow(probe)
            probe = next(iter(flow))
        api_key = probe.headers.get("x-api-key", "mk_probe_0000000000000000")
        secret_key = probe.headers.get("x-secret-key", "msk_probe_0000000000000000")
        if self._keys is Keys.API_KEY_ALONE:
            request.headers["x-api-key"] = api_key
        elif self._keys is Keys.SECRET_KEY_ALONE:
            request.headers["x-secret-key"] = secret_key
        elif self._keys is Keys.WRONG and "authorization" in probe.headers:
            request.headers["Authorization"] = "Bearer probe_0000000000000000"
        elif self._keys is Keys.WRONG:
            request.headers.update({"x-api-key": api_key, "x-secret-key": f"msk_probe_{'0' * 24}"})
        yield request


def unreachable(found: Seen) -> TransportError:
    """The error of a server that gave no answer at all."""
    return TransportError(found.fault)

"""The control paths of a service, as tests call them."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Mapping
from typing import Any, Final

import httpx

from simulator.pytest_plugin.loopback import LoopbackTransport

_MATCH: Final = ("device_id", "account_id")
_COUNTS: Final = ("exactly", "at_least", "at_most")
_TIMES: Final = ("next", "after", "probability")


class ControlRefused(Exception):
    """The service does not do what a test asked of it; the text is the service's and names the member."""

    def __str__(self) -> str:
        """The service's text and the status of its answer."""
        return f"{self.args[0]} (HTTP {self.args[1]})"


class NotThere(ControlRefused):
    """It was answered 404."""


__tracebackhide__ = operator.methodcaller("errisinstance", (ControlRefused, AssertionError))
"""pytest shows no frames of this module, by this name: a refusal is about the line of the test."""


class Control:
    """JSON in, JSON out: a client of the control surface, ``/_emulator/...``, or of another part of the service.

    Args:
        base_url: of the service.
        part: what paths begin with.
        headers: of each request.
    """

    def __init__(self, base_url: str, part: str = "/_emulator/", headers: Mapping[str, str] | None = None) -> None:
        url, transport = base_url + part, LoopbackTransport()
        self._http = httpx.Client(base_url=url, headers=headers, trust_env=False, transport=transport)

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The answer to a GET of a path below that part.

        Raises:
            ControlRefused: the service answers an error.
        """
        return self._ask("GET", path, params=query)

    def post(self, path: str, body: Any) -> dict[str, Any]:
        """The answer to a POST; see :meth:`get`."""
        return self._ask("POST", path, json=body)

    def put(self, path: str, body: Any) -> dict[str, Any]:
        """The answer to a PUT; see :meth:`get`."""
        return self._ask("PUT", path, json=body)

    def delete(self, path: str) -> None:
        """Delete it, if it is there; see :meth:`get`."""
        with contextlib.suppress(NotThere):
            self._ask("DELETE", path)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _ask(self, method: str, path: str, **sent: Any) -> dict[str, Any]:
        answer = self._http.request(method, path, **sent)
        if not answer.is_error:
            found: dict[str, Any] = answer.json() if answer.content else {}
            return found
        try:
            body = answer.json()
            text = f"{body['error']}: {body['message']}"
        except (ValueError, KeyError, TypeError):
            text = answer.text[:300]
        raise (NotThere if answer.status_code == httpx.codes.NOT_FOUND else ControlRefused)(text, answer.status_code)


class Fault:
    """A fault that requests meet.

    Args:
        control: of the service.
        shown: the rule, as the service answered it.
    """

    def __init__(self, control: Control, shown: Mapping[str, Any]) -> None:
        self._control = control
        self.fault_id = str(shown["fault_id"])

    @property
    def hits(self) -> int:
        """How many requests have met it."""
        return int(self._control.get(f"faults/{self.fault_id}")["hits"])

    @property
    def matched(self) -> int:
        """How many requests were of those that are meant, met or not."""
        return int(self._control.get(f"faults/{self.fault_id}")["matched"])

    def remove(self) -> None:
        """No request meets it any more."""
        self._control.delete(f"faults/{self.fault_id}")


class Snapshot:
    """The whole state of a service at one moment, to come back to.

    Args:
        control: of the service.
        name: of the snapshot.
    """

    def __init__(self, control: Control, name: str) -> None:
        self._control = control
        self.name = name

    def load(self) -> None:
        """Put everything back, of all accounts: what was stored since is gone, and the clock is the one of then."""
        self._control.post(f"snapshots/{self.name}/load", {})

    def delete(self) -> None:
        """Delete the snapshot."""
        self._control.delete(f"snapshots/{self.name}")


class Clock:
    """The service's clock, which quotas, expiry, presence, rules and faults go by. It goes on by itself after the test.

    Args:
        control: the service's control paths.
    """

    def __init__(self, control: Control) -> None:
        self._control = control
        self.is_moved = False

    def now(self) -> str:
        """This instant, RFC 3339."""
        return str(self._control.get("clock")["time"])

    def advance(self, seconds: float) -> str:
        """Move forward; whatever falls due on the way has happened when it returns. The new time."""
        self.is_moved = True
        return str(self._control.post("clock/advance", {"seconds": seconds})["time"])

    def freeze(self, at: str | None = None) -> str:
        """Stand still, at this instant (RFC 3339) or now, until it is advanced or goes on. The time."""
        self.is_moved = True
        wanted = {"mode": "frozen"} | ({} if at is None else {"time": at})
        return str(self._control.put("clock", wanted)["time"])

    def go_on(self) -> str:
        """Go by the machine's clock again. The time."""
        self.is_moved = False
        return str(self._control.put("clock", {"mode": "real"})["time"])


class ServiceUnderTest:
    """What a test asks of a service: faults, what it received, scripts, the clock.

    Args:
        base_url: of the service.

    Attributes:
        base_url: such as ``http://127.0.0.1:41817``.
        control: its control paths, for what has no method here.
        clock: its clock.
    """

    def __init__(self, base_url: str) -> None:
        self.base_url = base_url
        self.control = Control(base_url)
        self.clock = Clock(self.control)
        self._undo = contextlib.ExitStack()

    def fault(self, method: str | None = None, path: str | None = None, **wanted: Any) -> Fault:
        """Make requests meet a fault until the test ends: ``fault("POST", "/sensor-data", lose="answer", next=1)``.

        Args:
            method: of the requests; all when None.
            path: of the requests, a template of the documents such as ``/devices/{device_id}/commands``.
            wanted: further members of a match (``device_id``, ``account_id``), of the times (``next``, ``after``,
                ``probability``), and one effect (``lose``, ``reset``, ``latency``, ``answer``, ...), as in
                docs/faults.md.

        Raises:
            ControlRefused: the service does not take the rule; the text names the member.
        """
        match, rest = _split(method, path, wanted)
        times = {name: rest.pop(name) for name in _TIMES if name in rest}
        fault = Fault(self.control, self.control.post("faults", {"match": match, "times": times, "effect": rest}))
        self._undo.callback(fault.remove)
        return fault

    def received(self, method: str | None = None, path: str | None = None, **wanted: Any) -> int:
        """Check how many requests came: ``received("POST", "/sensor-data", device_id=device_id, exactly=1)``.

        Args:
            method: as for :meth:`fault`.
            path: as for :meth:`fault`.
            wanted: ``exactly``, ``at_least`` or ``at_most`` (without any at least one), further members of a match, and
                ``status``, ``after``, ``text``.

        Returns:
            How many came.

        Raises:
            AssertionError: it was another number, or the log does not reach back far enough to say. The text has the
                requests that come nearest, and what of them differs.
            ControlRefused: the question cannot be asked like that.
        """
        match, rest = _split(method, path, wanted)
        question = {"match": match, **rest}
        if not any(name in question for name in _COUNTS):
            question["at_least"] = 1
        answer = self.control.post("requests/verify", question)
        if not answer["holds"]:
            raise AssertionError(_describe(question, answer))
        return int(answer["count"])

    def requests(self, method: str | None = None, path: str | None = None, **filters: Any) -> list[dict[str, Any]]:
        """The requests that the service keeps, oldest first, with their answers.

        Args:
            method: as for :meth:`fault`.
            path: as for :meth:`fault`.
            filters: query parameters of ``GET /_emulator/requests``.
        """
        query = {"method": method, "path": path, "order": "asc", "limit": 1000, **filters}
        query = {name: value for name, value in query.items() if value is not None}
        found: list[dict[str, Any]] = []
        while True:
            page = self.control.get("requests", query)
            found += page["data"]
            if page["next_cursor"] is None:
                return found
            query["cursor"] = page["next_cursor"]

    def since_now(self) -> dict[str, str]:
        """The filter of requests that come from now on, whatever the log has forgotten of earlier ones."""
        newest = self.control.get("requests", {"limit": 1})["data"]
        return {"after": newest[0]["id"]} if newest else {}

    def script(self, device_id: str, **script: Any) -> dict[str, Any]:
        """Have the service play a registered device until the test ends.

        Args:
            device_id: of the device.
            script: members of ``POST /_emulator/devices``: ``answers``, ``poll_s``, ``readings``.
        """
        self._undo.callback(self.control.delete, f"devices/{device_id}")
        return self.control.post("devices", {"device_id": device_id, **script})

    def snapshot(self) -> Snapshot:
        """Save the whole state until the test ends; :meth:`Snapshot.load` comes back to it."""
        snapshot = Snapshot(self.control, str(self.control.post("snapshots", {})["name"]))
        self._undo.callback(snapshot.delete)
        return snapshot

    def tidy_up(self) -> None:
        """Take back what the test has set: its faults, its scripts, its snapshots, the clock."""
        self._undo.close()
        if self.clock.is_moved:
            self.clock.go_on()

    def close(self) -> None:
        """Close what this end has open."""
        self.control.close()


def _split(method: str | None, path: str | None, wanted: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The match that a call with keywords means, and its other keywords."""
    named = {"method": method, "path": path, **{name: wanted[name] for name in _MATCH if name in wanted}}
    match = {name: value for name, value in named.items() if value is not None}
    return match, {name: value for name, value in wanted.items() if name not in _MATCH}


def _describe(question: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """What was expected, what came, and what comes nearest."""
    expected = " and ".join(f"{name.replace('_', ' ')} {question[name]}" for name in _COUNTS if name in question)
    lines = [f"expected {expected} of {_shown(question['match'])}; {answer['count']} came"]
    if answer.get("reason"):
        lines.append(str(answer["reason"]))
    for miss in answer["nearest"]:
        lines.append(f"  nearest: {miss['method']} {miss['path']} -> {miss['status']}")
        lines += [f"    {one['field']}: wanted {one['wanted']!r}, found {one['found']!r}" for one in miss["differs"]]
    return "\n".join(lines)


def _shown(match: Mapping[str, Any]) -> str:
    named = " ".join(str(match[name]) for name in ("method", "path") if name in match) or "all requests"
    others = ", ".join(f"{name}={value!r}" for name, value in match.items() if name not in {"method", "path"})
    return f"{named} with {others}" if others else named

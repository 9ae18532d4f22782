"""A device that speaks to the service by the standard library alone."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from typing import Any

ATTEMPTS = 5
_TIMEOUT_S = 30
_UNREADABLE = "the answer is no JSON"


class NotAcceptedError(Exception):
    """The service did not take a message, however often it was sent."""


class Thermometer:
    """One thermometer.

    Args:
        base_url: of the service.
        headers: the credential.
        device_id: who it is.
        sleep: waits so many seconds; a test gives one that does not.
    """

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str],
        device_id: str,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._base_url = base_url
        self._headers = dict(headers)
        self._device_id = device_id
        self._sleep = sleep
        self._answered: dict[str, dict[str, Any]] = {}
        self.interval_s = 60

    def send(self, celsius: float) -> None:
        """Send a reading. All attempts carry one key, so the service stores it once, whichever answer is lost."""
        reading = {"device_id": self._device_id, "sensor_data": {"celsius": celsius}}
        self._ask("POST", "/sensor-data", reading, {"Idempotency-Key": str(uuid.uuid4())})

    def obey(self) -> int:
        """Carry out the open commands, each once, and report; how many there were."""
        path = f"/devices/{self._device_id}/commands"
        commands = self._ask("GET", f"{path}?status=open")["data"]
        for command in commands:
            result = self._answered.get(command["id"])
            if result is None:
                result = self._answered[command["id"]] = self._carry_out(command["command_payload"])
            self._ask("POST", f"{path}/{command['id']}/result", result)
        return len(commands)

    def _carry_out(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        match payload:
            case {"command": "set_interval", "interval_s": int(seconds)} if seconds > 0:
                before, self.interval_s = self.interval_s, seconds
                return {"status": "succeeded", "result": {"before": before, "after": seconds}}
            case _:
                return {"status": "rejected", "error": "no such command"}

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, more: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """The answer, at the first attempt that has one; waits longer from attempt to attempt, or as it is told."""
        problem: Exception = NotAcceptedError(path)
        for attempt in range(ATTEMPTS):
            wait_s = 2.0**attempt
            try:
                return self._try(method, path, body, more or {})
            except urllib.error.HTTPError as error:
                problem = error
                if error.code != 429 and error.code < 500:
                    break
                wait_s = float(error.headers.get("Retry-After") or wait_s)
            except (
                OSError,
                http.client.HTTPException,
                ValueError,
            ) as error:  # no connection, no answer, half an answer
                problem = error
            self._sleep(wait_s)
        raise NotAcceptedError(f"{method} {path}: {problem}")

    def _try(self, method: str, path: str, body: Mapping[str, Any] | None, more: Mapping[str, str]) -> dict[str, Any]:
        headers = {**self._headers, **more, "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base_url + path, data, headers, method=method)  # noqa: S310 - http only
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
            found = json.loads(answer.read())
        if not isinstance(found, dict):
            raise ValueError(_UNREADABLE)
        return found

"""The check of the broker: it accepts this device, and the device may subscribe."""

from __future__ import annotations

from typing import Final

from agent.doctor.findings import Check, Finding, cause_and_fix, failed, ok, skipped, unreachable
from agent.doctor.quick_check import try_broker
from agent.doctor.subject import Subject
from agent.errors import ConfigurationError, LockedOut, Offline
from agent.wire.address import authority

_TIMEOUT_S: Final = 45.0


def _broker(subject: Subject) -> Finding:
    mqtt = subject.config.mqtt
    if mqtt is None:
        return skipped("no broker is configured: the agent speaks HTTP only")
    if subject.status.process_id is not None:
        # A second connection with the same id would throw the agent's out.
        part = subject.status.last_status.parts.get("broker") if subject.status.last_status is not None else None
        if part is None or part.state == "ok":
            return ok("left alone, since the running agent is connected" if part else "left alone: the agent runs")
        cause, fix = cause_and_fix(part.detail or part.state)
        return failed(f"the running agent is not connected: {part.state}", cause, fix)
    seen = authority(mqtt.host, mqtt.port_in_use)
    try:
        text = try_broker(subject.config, mqtt, subject.credentials)
    except ConfigurationError as error:
        cause, fix = cause_and_fix(error.faults[0])
        return failed(seen, cause, fix)
    except Offline as error:
        cause, fix = cause_and_fix(str(error))
        is_our_fault = isinstance(error, LockedOut) or error.state == "bad_certificate"
        return (failed if is_our_fault else unreachable)(seen, cause, fix)
    return ok(text)


CHECKS: Final = (
    Check(
        "broker",
        "whether the broker takes this device and lets it subscribe",
        _broker,
        ("configuration", "key_files", "tcp", "tls"),
        online=True,
        timeout_s=_TIMEOUT_S,
    ),
)

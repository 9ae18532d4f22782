"""The options of ``fleet-simulator up``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.wire.limits import QUOTA_PER_MINUTE

DEVICES_MAX: Final = 500
DEFAULT_PORT: Final = 8080
DEFAULT_GATEWAY_PORT: Final = 8081


@dataclass(frozen=True, slots=True)
class UpSettings:
    """A service on this machine, with virtual devices when asked for.

    Attributes:
        host, port: where the service listens; port 0 takes any free one.
        data_dir: where the service keeps everything; None keeps it in memory.
        devices: how many virtual devices are registered and switched on.
        product: YAML file with their product; None takes the climate node.
        interval_s: how often each of them is read.
        rate_limit: requests of the key in a calendar minute; 0 = no limit.
        seed: of what they measure.
        gateway: start a broker and a gateway too, with a device ready to be played.
        gateway_port: where the gateway listens for devices that speak HTTP; 0 takes any free one.
        mqtt_port: of the broker; 0 takes any free one, None the one of the last start in ``data_dir`` when it is free.
        profiles: how the service answers once the devices are registered, as ``service --profile`` takes it.
        accounts: manufacturer accounts, each with keys of its own.
        console: serve the console.
        runs_dir: of fleet runs, for the console; None takes its default.
        scenarios_dir: of scenarios that may be started from the console; None starts none.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    data_dir: Path | None = None
    devices: int = 0
    product: Path | None = None
    interval_s: float = 10.0
    rate_limit: int = QUOTA_PER_MINUTE
    seed: int = 1
    gateway: bool = True
    gateway_port: int = DEFAULT_GATEWAY_PORT
    profiles: tuple[str, ...] = ()
    accounts: int = 1
    mqtt_port: int | None = None
    console: bool = True
    runs_dir: Path | None = None
    scenarios_dir: Path | None = None


def quota_needed(devices: int, interval_s: float, wait_s: float) -> int:
    """Requests in a minute that so many quiet devices make: their held polls and their readings."""
    return round(devices * (60 / wait_s + 60 / interval_s))

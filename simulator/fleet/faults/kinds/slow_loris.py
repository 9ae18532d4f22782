"""Slow loris: connections that send a request a few bytes at a time, so that a server holds them for a long while.

It is traffic of its own beside the devices': what the devices get meanwhile shows whether the server minds.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simulator.fleet.faults.base import LastingBasis, register_fault
from simulator.fleet.faults.link import LinkFault
from simulator.fleet.settings import Seconds, key


class SlowLorisSettings(LastingBasis):
    """So many slow connections, opened at its begin and held until its end."""

    kind: Literal["slow_loris"]
    connections: Annotated[int, Field(ge=1, le=10_000)] = key("how many, of the whole run", default=100)
    every_s: Seconds = key("between two bytes of one connection", unit="s", default=1.0)


@register_fault(SlowLorisSettings)
class SlowLoris(LinkFault[SlowLorisSettings]):
    """Applies :class:`SlowLorisSettings` to one run.

    :mod:`simulator.fleet.workload.slow_connections` makes the connections.
    """

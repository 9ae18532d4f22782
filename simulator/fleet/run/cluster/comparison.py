"""Versions, program and clock of a cluster's machines, compared with those of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from simulator.fleet.run.clocks import WALL_CLOCK_S
from simulator.fleet.run.cluster.placement import Node

_PACKAGES: Final = ("agent", "gateway", "simulator")


@dataclass(frozen=True, slots=True)
class Seen:
    """Versions, program and clock of one machine, to be compared with this one.

    Attributes:
        python, distribution: versions; empty where the distribution is not there.
        sources: digest of the program's modules.
        wall_s: what its clock shows, seconds since the epoch.
    """

    python: str
    distribution: str
    sources: str
    wall_s: float


def make_look() -> Callable[[], tuple[str, str, str, float]]:
    """Looks at a machine: a function that travels whole, since nothing of ours may be there."""
    packages = _PACKAGES

    def look() -> tuple[str, str, str, float]:
        import hashlib
        import platform
        import time
        from importlib import metadata, util
        from pathlib import Path

        try:
            distribution = metadata.version("device-agent")
        except metadata.PackageNotFoundError:
            return platform.python_version(), "", "", time.time()
        digest = hashlib.sha256()
        for package in packages:
            spec = util.find_spec(package)
            for folder in (spec.submodule_search_locations or []) if spec is not None else []:
                for path in sorted(Path(folder).rglob("*.py")):
                    digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
        return platform.python_version(), distribution, digest.hexdigest(), time.time()

    return look


def look() -> Seen:
    """This machine."""
    return Seen(*make_look()())


def differences(nodes: Sequence[Node], seen: Sequence[Seen], between_s: tuple[float, float]) -> list[str]:
    """What is not the same there as here, a sentence each.

    Args:
        nodes: machines.
        seen: what each of them has.
        between_s: when that was asked, and when all had answered, by this machine's clock; seconds since the epoch.
    """
    ours = look()
    return [
        f"{node.name}: {fault}"
        for node, there in zip(nodes, seen, strict=True)
        for fault in _faults(there, ours, between_s)
    ]


def _faults(there: Seen, ours: Seen, between_s: tuple[float, float]) -> Iterator[str]:
    if there.python != ours.python:
        yield f"has Python {there.python}, and this machine has {ours.python}: install the same"
    elif not there.distribution:
        yield "has no device-agent: there pip install '.[cluster]' in a clone of device-agent"
    elif there.distribution != ours.distribution:
        yield f"has device-agent {there.distribution}, and this machine has {ours.distribution}: install the same"
    elif there.sources != ours.sources:
        yield f"has another build of device-agent {ours.distribution} than this machine: install the same"
    asked_s, answered_s = between_s
    ahead_s = max(there.wall_s - answered_s, 0.0) or min(there.wall_s - asked_s, 0.0)
    if abs(ahead_s) > WALL_CLOCK_S:
        way = "ahead of" if ahead_s > 0 else "behind"
        why = "devices date their readings by it"
        yield f"its clock is {abs(ahead_s):.0f} s {way} this machine's, and {why}: set both by a time server"

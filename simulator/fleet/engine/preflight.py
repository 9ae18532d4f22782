"""The resources of this machine beside the needs of a run, in numbers, before the first request.

A generator that runs out of descriptors, ports or memory in the middle of a run looks like a target that fails. So what
does not fit is refused with the numbers and the fix, and what will only disturb the measurement is said.
"""

from __future__ import annotations

import math
import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SOCKET_BYTES: Final = 3 * 1024
"""User memory of a quiet connection: measured 2.7 KB (docs/fleet-limits.md)."""
TLS_SOCKET_BYTES: Final = 34 * 1024
"""The same with TLS: measured 33.1 KB."""
KERNEL_BYTES: Final = 5 * 1024
"""Kernel memory of one end of a quiet connection: measured 4.1 to 4.8 KB."""
WORKER_BYTES: Final = 120 * 1024 * 1024
"""A worker process before it has a device: the interpreter, numpy and a minute of histograms."""
_SPARE_DESCRIPTORS: Final = 64
_MEMORY_SHARE: Final = 0.8
_PORT_SHARE: Final = 0.9
_MIB: Final = 1024 * 1024
_UNLIMITED: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class Host:
    """What a machine has.

    Attributes:
        descriptors: files and sockets that one process may have open, after its soft limit was raised.
        ports: ephemeral ports for one source address and one target.
        memory_bytes: free for new processes without swapping.
        cores: that we may run on.
        backlog: connections that may wait to be accepted by one server on this machine.
    """

    descriptors: int
    ports: int
    memory_bytes: int
    cores: int
    backlog: int


@dataclass(frozen=True, slots=True)
class Demand:
    """What a run asks.

    Attributes:
        devices: of all workers.
        device_bytes: memory of one device without its sockets.
        sockets: that may be open at once, of all workers.
        workers: processes.
        source_addresses: that they connect from.
        tls: with TLS.
        target_is_here: the target runs on this machine: it holds the other end of each connection.
    """

    devices: int
    device_bytes: int
    sockets: int
    workers: int
    source_addresses: int = 1
    tls: bool = False
    target_is_here: bool = False


@dataclass(frozen=True, slots=True)
class Advice:
    """The numbers to write into a scenario so that its run fits.

    Attributes:
        more_workers: each has few enough sockets; None where no number helps.
        fewer_workers: each has a core.
        devices: they have enough memory.
        scope: what the numbers count where that is more than one machine, with a space before it.
    """

    more_workers: int | None
    fewer_workers: int
    devices: int
    scope: str = ""


@dataclass(frozen=True, slots=True)
class ResourceCheck:
    """One thing that a run needs.

    Attributes:
        what: in words.
        asked, held: in ``unit``.
        fits: there is enough.
        refuses: without it the run cannot be what the scenario says; otherwise it is only disturbed.
        fix: what to do where it does not fit.
    """

    what: str
    asked: int
    held: int
    unit: str
    fix: str
    refuses: bool = True

    @property
    def fits(self) -> bool:
        """Whether this machine has enough for the run."""
        return self.asked <= self.held

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        need = f"{self.what}: {self.asked:,}{unit} needed, {self.held:,} there"
        return need if self.fits else f"{need}: {self.fix}"


def read_host(proc: Path = Path("/proc")) -> Host:
    """This machine, as it is now.

    Args:
        proc: where the kernel reports it; on a system without it, what is not known is taken as plenty.
    """
    low, high = _numbers(proc / "sys/net/ipv4/ip_local_port_range", (49_152, 65_535))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Host(
        descriptors=_hard_limit(),
        ports=high - low + 1,
        memory_bytes=_available_bytes(proc),
        cores=cores,
        backlog=_numbers(proc / "sys/net/core/somaxconn", (128,))[0],
    )


def examine(demand: Demand, host: Host, advice: Advice | None = None) -> tuple[ResourceCheck, ...]:
    """Every need of the run with what there is, in a fixed order.

    Args:
        demand: of the workers of this machine.
        host: what the machine has.
        advice: what to write into the scenario; None where the machine makes all of the load.
    """
    advice = advice or advice_of(demand, host)
    return (
        _descriptors(demand, host, advice),
        _ports(demand, host),
        _memory(demand, host, advice),
        ResourceCheck(
            "cores for the workers",
            demand.workers + demand.target_is_here,
            host.cores,
            "",
            f"they disturb each other: workers: {advice.fewer_workers}{advice.scope}"
            + (", or the target on another machine" if demand.target_is_here else ""),
            refuses=False,
        ),
        ResourceCheck(
            "connections that wait to be accepted, if all come at once",
            demand.sockets if demand.target_is_here else 0,
            host.backlog,
            "",
            "SYNs are dropped and come again after a second: a ramp in the phases, or "
            f"sysctl net.core.somaxconn={demand.sockets} and a server that listens with as much",
            refuses=False,
        ),
    )


def advice_of(demand: Demand, host: Host) -> Advice:
    """The numbers that fit a machine that makes all of the load."""
    each, fixed = _memory_of_devices(demand)
    held = int(host.memory_bytes * _MEMORY_SHARE) // _MIB * _MIB
    return Advice(
        more_workers=math.ceil(demand.sockets / sockets_of_worker(host)),
        fewer_workers=max(host.cores - demand.target_is_here, 1),
        devices=max(int((held - fixed) / max(each / max(demand.devices, 1), 1)), 0),
    )


def sockets_of_worker(host: Host) -> int:
    """How many sockets a worker may have open there."""
    return max(host.descriptors - _SPARE_DESCRIPTORS, 1)


def missing(findings: tuple[ResourceCheck, ...]) -> list[str]:
    """What this machine lacks for the run, one sentence each with the numbers and the fix; empty if nothing."""
    return [str(finding) for finding in findings if finding.refuses and not finding.fits]


def raise_descriptor_limit() -> int:
    """Let this process open as many files as its hard limit allows; how many that is.

    Each worker calls it for itself.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _hard_limit()
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # macOS has a lower limit of its own (kern.maxfilesperproc)
            return soft
    return wanted


def _descriptors(demand: Demand, host: Host, advice: Advice) -> ResourceCheck:
    asked = math.ceil(demand.sockets / demand.workers) + _SPARE_DESCRIPTORS
    fix = f"ulimit -n {asked} (as root, or LimitNOFILE= of the unit)"
    if advice.more_workers is not None:
        fix += f", or workers: {advice.more_workers}{advice.scope}"
    return ResourceCheck("descriptors of each worker", asked, host.descriptors, "", fix)


def _ports(demand: Demand, host: Host) -> ResourceCheck:
    held = int(host.ports * _PORT_SHARE)  # some are taken, or wait for a minute in TIME_WAIT
    addresses = math.ceil(demand.sockets / max(held, 1))
    more = str(addresses) if demand.target_is_here else f"a list of {addresses} addresses of the machine"
    fix = f"target.source_addresses: {more}, or sysctl net.ipv4.ip_local_port_range='1024 65535'"
    return ResourceCheck("ports", demand.sockets, held * demand.source_addresses, "", fix)


def _memory(demand: Demand, host: Host, advice: Advice) -> ResourceCheck:
    with_devices, fixed = _memory_of_devices(demand)
    devices = demand.devices * demand.device_bytes
    fix = f"fleet.devices: {advice.devices}{advice.scope}"
    if _memory_of_sockets(demand) > devices:
        fix += ", or connections: 256"
    held = int(host.memory_bytes * _MEMORY_SHARE)
    return ResourceCheck("memory", math.ceil((with_devices + fixed) / _MIB), held // _MIB, "MiB", fix)


def _memory_of_devices(demand: Demand) -> tuple[int, int]:
    """Bytes that go with the devices, and those that stay with fewer of them."""
    devices, sockets = demand.devices * demand.device_bytes, _memory_of_sockets(demand)
    workers = demand.workers * WORKER_BYTES
    # A device's own sockets go with it; shared ones stay.
    return (devices + sockets, workers) if demand.sockets >= demand.devices else (devices, workers + sockets)


def _memory_of_sockets(demand: Demand) -> int:
    user_bytes = TLS_SOCKET_BYTES if demand.tls else SOCKET_BYTES
    return demand.sockets * (user_bytes + (2 if demand.target_is_here else 1) * KERNEL_BYTES)


def _hard_limit() -> int:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY:
        return hard
    return _numbers(Path("/proc/sys/fs/nr_open"), (10_240,))[0]


def _available_bytes(proc: Path) -> int:
    """What may be used without swapping, of the machine or of our control group."""
    held = _UNLIMITED
    try:
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                held = int(line.split()[1]) * 1024
        group = (proc / "self/cgroup").read_text()
    except (OSError, ValueError, IndexError):
        return held
    for line in group.splitlines():
        if line.startswith("0::"):
            folder = Path("/sys/fs/cgroup") / line[3:].lstrip("/")
            try:
                limit, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
            except OSError:
                continue
            if limit != "max":
                held = min(held, max(int(limit) - int(used), 0))
    return held


def _numbers(path: Path, default: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in path.read_text().split())
    except (OSError, ValueError):
        return default

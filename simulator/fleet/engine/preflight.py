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
"""User memory of a quiet connection: measured 2.7 KB (docs/fleet.md)."""
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
    """

    descriptors: int
    ports: int
    memory_bytes: int
    cores: int


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
class ResourceCheck:
    """One thing that a run needs.

    Attributes:
        what: in words.
        asked, held: how much.
        fix: what to do where it does not fit.
        refuses: without it the run cannot be what the scenario says; otherwise it is only disturbed.
    """

    what: str
    asked: int
    held: int
    fix: str
    refuses: bool = True

    @property
    def fits(self) -> bool:
        """Whether this machine has enough for the run."""
        return self.asked <= self.held

    def __str__(self) -> str:
        need = f"{self.what}: {self.asked:,} needed, {self.held:,} there"
        return need if self.fits else f"{need}: {self.fix}"


def read_host(proc: Path = Path("/proc")) -> Host:
    """This machine, as it is now.

    Args:
        proc: where the kernel reports it; on a system without it, what is not known is taken as plenty.
    """
    low, high = _numbers(proc / "sys/net/ipv4/ip_local_port_range", (49_152, 65_535))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Host(_hard_limit(), high - low + 1, _available_bytes(proc), cores)


def examine(demand: Demand, host: Host) -> tuple[ResourceCheck, ...]:
    """Every need of the run with what there is, in a fixed order: descriptors, ports, memory, cores."""
    is_here = demand.target_is_here
    each = math.ceil(demand.sockets / demand.workers) + _SPARE_DESCRIPTORS
    workers = math.ceil(demand.sockets / max(host.descriptors - _SPARE_DESCRIPTORS, 1))
    ports = int(host.ports * _PORT_SHARE)  # some are taken, or wait for a minute in TIME_WAIT
    addresses = math.ceil(demand.sockets / max(ports, 1))
    others = max(host.cores - is_here, 1)
    descriptors_fix = f"ulimit -n {each} (as root, or LimitNOFILE= of the unit), or workers: {workers}"
    ports_fix = (
        f"target.source_addresses: a list of {addresses} addresses of the machine, or "
        "sysctl net.ipv4.ip_local_port_range='1024 65535'"
    )
    cores_fix = f"they disturb each other: workers: {others}" + (
        ", or the target on another machine" if is_here else ""
    )
    return (
        ResourceCheck("descriptors of each worker", each, host.descriptors, descriptors_fix),
        ResourceCheck("ports", demand.sockets, ports * demand.source_addresses, ports_fix),
        _memory(demand, host),
        ResourceCheck("cores for the workers", demand.workers + is_here, host.cores, cores_fix, refuses=False),
    )


def _memory(demand: Demand, host: Host) -> ResourceCheck:
    per_socket = TLS_SOCKET_BYTES if demand.tls else SOCKET_BYTES
    sockets = demand.sockets * (per_socket + (2 if demand.target_is_here else 1) * KERNEL_BYTES)
    devices, fixed = demand.devices * demand.device_bytes, demand.workers * WORKER_BYTES
    held = int(host.memory_bytes * _MEMORY_SHARE) // _MIB * _MIB
    # A device's own sockets go with it; shared ones stay with fewer devices.
    with_each, rest = (devices + sockets, fixed) if demand.sockets >= demand.devices else (devices, fixed + sockets)
    fitting = max(int((held - rest) / max(with_each / max(demand.devices, 1), 1)), 0)
    fix = f"fleet.devices: {fitting}" + (", or connections: 256" if sockets > devices else "")
    return ResourceCheck("memory in MiB", math.ceil((devices + sockets + fixed) / _MIB), held // _MIB, fix)


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
        group = (proc / "self/cgroup").read_text().partition("0::")[2].strip()
        folder = Path("/sys/fs/cgroup") / group.lstrip("/")
        limit, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
        if limit != "max":
            held = min(held, max(int(limit) - int(used), 0))
    except (OSError, ValueError, IndexError):
        pass
    return held


def _numbers(path: Path, default: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in path.read_text().split())
    except (OSError, ValueError):
        return default

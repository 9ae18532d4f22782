"""A network namespace of its own behind a link that can be cut, delayed and made lossy; needs root.

A link is two TUN devices, one at each end, and a thread that carries every packet from one to the other, or does not.
Nothing of it is seen by the programs at its ends: what is cut is silent, as a cable is.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import random
import select
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster_running import SMALL, RunningCluster

_SET_INTERFACE = 0x400454CA
_TUN_WITHOUT_HEADER = 0x0001 | 0x1000
_PACKET = 65536
_JOIN_S = 60


def can_make_networks() -> bool:
    """Whether this process may make namespaces and TUN devices."""
    return os.geteuid() == 0 and shutil.which("ip") is not None and Path("/dev/net/tun").exists()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _open_tun(name: str) -> int:
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _SET_INTERFACE, struct.pack("16sH22x", name.encode(), _TUN_WITHOUT_HEADER))
    return descriptor


class Link:
    """A network of two addresses, one here and one in a namespace.

    Args:
        namespace: by name.
        name: of the devices, at most ten characters.
        here, there: the addresses.

    Attributes:
        is_cut: nothing passes.
        delay_s: of each packet, each way.
        loss: share of the packets that do not arrive.
        carried: packets that did.
    """

    def __init__(self, namespace: str, name: str, here: str, there: str) -> None:
        self.is_cut = False
        self.delay_s = self.loss = 0.0
        self.carried = 0
        self._random = random.Random(name)
        self._ends = [_open_tun(f"{name}h"), _open_tun(f"{name}n")]
        _ip("addr", "add", here, "peer", there, "dev", f"{name}h")
        _ip("link", "set", f"{name}h", "up")
        _ip("link", "set", f"{name}n", "netns", namespace)
        _ip("-n", namespace, "addr", "add", there, "peer", here, "dev", f"{name}n")
        _ip("-n", namespace, "link", "set", f"{name}n", "up")
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="link")
        self._thread.start()

    def close(self) -> None:
        """Take both devices away."""
        self._is_over.set()
        self._thread.join()
        for end in self._ends:
            os.close(end)

    def _carry(self) -> None:
        waiting: list[tuple[float, int, int, bytes]] = []
        taken = 0
        while not self._is_over.is_set():
            left_s = min(waiting[0][0] - time.monotonic(), 0.1) if waiting else 0.1
            ready, _, _ = select.select(self._ends, [], [], max(0.0, left_s))
            for end in ready:
                with contextlib.suppress(OSError):
                    packet = os.read(end, _PACKET)
                    if self.is_cut or self._random.random() < self.loss:
                        continue
                    taken += 1
                    other = self._ends[1 - self._ends.index(end)]
                    heapq.heappush(waiting, (time.monotonic() + self.delay_s, taken, other, packet))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, end, packet = heapq.heappop(waiting)
                with contextlib.suppress(OSError):  # its queue is full, or the namespace is gone: lost, as anywhere
                    os.write(end, packet)
                    self.carried += 1


@dataclass(slots=True)
class RemoteMachine:
    """A machine that has its own network, and may be a node of a cluster.

    Attributes:
        namespace: its name.
        here: the address of the other side in the cluster's network: for the head.
        address: its own there.
        service_at: the address of the other side in the network with the service.
        seen_as: its own there: the one that the service's log shows.
        disk: a folder for Ray's files.
        to_cluster: carries what Ray says.
        to_service: carries what the devices say.
    """

    namespace: str
    here: str
    address: str
    service_at: str
    seen_as: str
    disk: Path
    to_cluster: Link
    to_service: Link
    _programs: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def join(self, cluster: RunningCluster, cores: int, environment: Mapping[str, str] | None = None) -> None:
        """Be a node of a cluster with so many cores.

        Args:
            cluster: its head has the address ``here``.
            cores: for workers.
            environment: of the node's processes, beside this process's.
        """
        before, settings = cluster.count_nodes(), [f"{name}={value}" for name, value in (environment or {}).items()]
        words = [str(Path(sys.executable).with_name("ray")), "start", f"--address={cluster.address}", "--block"]
        words += [f"--node-ip-address={self.address}", f"--num-cpus={cores}", "--disable-usage-stats"]
        words += [f"--object-store-memory={SMALL['object_store_memory']}"]
        # Ray's files of a machine are on its own disk.
        own = f"mount --bind {shlex.quote(str(self.disk))} {os.environ['TMPDIR']}/ray && exec {shlex.join(words)}"
        program = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace, "env", *settings, "sh", "-c", own],
            stdout=subprocess.DEVNULL,
        )
        self._programs.append(program)
        deadline_s = time.monotonic() + _JOIN_S
        while cluster.count_nodes() == before:
            if program.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError("the node did not join the cluster")
            time.sleep(0.1)

    @property
    def pids(self) -> list[int]:
        """Its processes."""
        words = ["ip", "netns", "pids", self.namespace]
        found = subprocess.run(words, check=False, capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split()]

    def power_off(self) -> None:
        """It is gone at once, and nobody hears of it: no connection is closed."""
        self.to_cluster.is_cut = self.to_service.is_cut = True
        self.kill()

    def kill(self) -> None:
        """End all its processes."""
        while pids := self.pids:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for program in self._programs:
                program.wait()


@contextlib.contextmanager
def remote_machine(number: int) -> Iterator[RemoteMachine]:
    """A machine with both its links; gone with the block, with all its processes.

    Args:
        number: of its networks, below 250.
    """
    namespace, name = f"fleet-{os.getpid()}-{number}", f"f{os.getpid() % 100000}{number % 10}"
    # RFC 2544: for measurements alone.
    here, address, service_at, seen_as = (f"198.{net}.{number}.{end}" for net in (18, 19) for end in (1, 2))
    with contextlib.ExitStack() as ends:
        _ip("netns", "add", namespace)
        ends.callback(_ip, "netns", "del", namespace)
        _ip("-n", namespace, "link", "set", "lo", "up")
        to_cluster = Link(namespace, f"{name}c", here, address)
        ends.callback(to_cluster.close)
        to_service = Link(namespace, f"{name}s", service_at, seen_as)
        ends.callback(to_service.close)
        disk = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)))
        machine = RemoteMachine(namespace, here, address, service_at, seen_as, disk, to_cluster, to_service)
        ends.callback(machine.kill)
        yield machine

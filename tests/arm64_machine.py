"""An arm64 machine, emulated: QEMU's ``virt``, Debian's own kernel and systemd, this machine's loopback for a network.

Its root is made once by mmdebstrap under qemu-user, some eight minutes, and kept as an image in :data:`CACHE`. What a
boot writes is thrown away. Commands go to a shell on a port that QEMU forwards from 127.0.0.1. It has an address, and
neither a route nor a name server: of QEMU's network it reaches :data:`HOST` alone, which is 127.0.0.1 of this machine.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from tests.ports import free_port

CACHE: Final = "ARM64_IMAGE_CACHE"
"""Environment variable: the folder of the image; by default ``~/.cache/device-agent``."""
PROGRAMS: Final = {
    "qemu-system-aarch64": "qemu-system-arm",
    "qemu-aarch64-static": "qemu-user-static",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
}
"""What has to be installed, and the package that brings it."""
HOST: Final = "10.0.2.2"
"""Where the machine finds what listens on 127.0.0.1 of this machine."""
_SHELL: Final = 2222
_PACKAGES: Final = "systemd,systemd-sysv,dbus,udev,apt,python3,linux-image-cloud-arm64,initramfs-tools"
_SUITE: Final = "bookworm"
_MAKE_S: Final = 3600
_BOOT_S: Final = 600.0
_COMMAND_S: Final = 1200.0
# The magic of an ELF program for aarch64, as binfmt-support registers it (qemu-aarch64).
_MAGIC: Final = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
_MASK: Final = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
_INITRD: Final = (
    "echo MODULES=list > conf.d/small; printf 'virtio_blk\\nvirtio_pci\\nvirtio_mmio\\next4\\n' > modules; "
    "echo update_initramfs=no > update-initramfs.conf"
)
_FILES: Final = {
    "etc/hostname": "device\n",
    "etc/machine-id": "6d5c1e8d3f0b4c5a9e7d2b1a0f9e8d7c\n",
    "etc/fstab": "/dev/vda / ext4 rw 0 1\n/dev/vdb /mnt ext4 ro,nofail 0 0\n",
    "etc/systemd/network/80-host.network": (
        "[Match]\nName=e*\n[Network]\nAddress=10.0.2.15/24\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n"
    ),
    "etc/systemd/system/shell.socket": f"[Socket]\nListenStream={_SHELL}\nAccept=yes\n",
    "etc/systemd/system/shell@.service": "[Service]\nExecStart=/bin/sh\nStandardInput=socket\nStandardError=socket\n",
}
_ENABLED: Final = {
    "sockets.target.wants/shell.socket": "/etc/systemd/system/shell.socket",
    "multi-user.target.wants/systemd-networkd.service": "/usr/lib/systemd/system/systemd-networkd.service",
}


def image() -> Path:
    """The folder with ``root.img``, ``vmlinuz`` and ``initrd.img``; made where it is not there yet. Needs root.

    Raises:
        RuntimeError: it could not be made.
    """
    folder = Path(os.environ.get(CACHE, Path.home() / ".cache" / "device-agent")) / f"arm64-{_SUITE}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        making = Path(tempfile.mkdtemp(prefix="arm64-", dir=folder.parent))
        try:
            _make(making)
            making.rename(folder)
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)
            raise
    return folder


def _make(folder: Path) -> None:
    tree = folder / "tree"
    # In a mount namespace of its own: only there the kernel learns what runs programs for arm64.
    register = (
        "mount -t binfmt_misc none /proc/sys/fs/binfmt_misc 2>/dev/null; cd /proc/sys/fs/binfmt_misc; "
        'test -e qemu-aarch64-device-agent || printf "%s" "$REGISTER" > register; '
        'code=0; cd /; "$@" || code=$?; echo -1 > /proc/sys/fs/binfmt_misc/qemu-aarch64-device-agent; exit $code'
    )
    line = f":qemu-aarch64-device-agent:M::{_MAGIC}:{_MASK}:{shutil.which('qemu-aarch64-static')}:OCF"
    build = ("mmdebstrap", "--mode=root", "--architectures=arm64", "--variant=essential", f"--include={_PACKAGES}")
    # Under emulation each module that the initrd does not need costs seconds, and dpkg would make it twice.
    small = f'mkdir -p "$1/etc/initramfs-tools/conf.d"; cd "$1/etc/initramfs-tools"; {_INITRD}'
    options = (
        "--dpkgopt=force-unsafe-io",
        "--dpkgopt=force-confold",
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        "--skip=check/qemu",
        f"--essential-hook={small}",
    )
    apart = ("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "sh", "-c", register, "sh")
    _run(*apart, *build, *options, _SUITE, str(tree), environ={"REGISTER": line})
    _finish(folder)


def _finish(folder: Path) -> None:
    tree = folder / "tree"
    for name, text in _FILES.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    for name, target in _ENABLED.items():
        link = tree / "etc/systemd/system" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    shutil.rmtree(tree / "etc/systemd/system/timers.target.wants", ignore_errors=True)
    (tree / "etc/resolv.conf").unlink(missing_ok=True)  # this machine's, which nobody reaches from there
    for kind in ("vmlinuz", "initrd.img"):
        (found,) = (tree / "boot").glob(f"{kind}-*64")
        shutil.copyfile(found, folder / kind)
    disk_of(tree, folder / "root.img", "2G")
    shutil.rmtree(tree)


def disk_of(tree: Path, path: Path, size: str) -> None:
    """A disk image with the files of a folder, owned as they are there.

    Raises:
        RuntimeError: it could not be made.
    """
    _run("mke2fs", "-q", "-t", "ext4", "-d", str(tree), str(path), size)


class Arm64Machine:
    """One boot of the machine; a context manager that ends it.

    Args:
        folder: of :func:`image`.
        disk: an image that is mounted at ``/mnt``, read-only.
    """

    def __init__(self, folder: Path, disk: Path) -> None:
        self._folder = folder
        self._disk = disk
        self._port = free_port()
        self._console = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        forward = f"hostfwd=tcp:127.0.0.1:{self._port}-:{_SHELL}"
        drives = [
            f"file={self._folder / 'root.img'},if=virtio,format=raw,snapshot=on,cache=unsafe",
            f"file={self._disk},if=virtio,format=raw,readonly=on",
        ]
        command = [
            *("setpriv", "--pdeathsig=KILL", "nice", "-n", "10", "qemu-system-aarch64"),
            *("-machine", "virt", "-cpu", "cortex-a72", "-smp", "2", "-m", "1024", "-nographic", "-no-reboot"),
            *("-kernel", str(self._folder / "vmlinuz"), "-initrd", str(self._folder / "initrd.img")),
            *("-append", "console=ttyAMA0 root=/dev/vda rw quiet"),
            *(word for drive in drives for word in ("-drive", drive)),
            *("-netdev", f"user,id=net,ipv6=off,{forward}"),
            *("-device", "virtio-net-pci,netdev=net,romfile="),
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._console, stderr=self._console)
        booted = {"running", "degraded"}
        self.wait_until(lambda: self.ask("systemctl is-system-running") in booted, "it has booted", _BOOT_S)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._console.close()

    def ask(self, script: str) -> str:
        """What a script for its shell prints, both streams; empty while the machine cannot be reached."""
        return self._tell(script)[1]

    def run(self, script: str) -> str:
        """As :meth:`ask`, of a script that has to end well."""
        code, said = self._tell(script)
        assert code == 0, f"{script} ended with {code}: {said}"
        return said

    def _tell(self, script: str) -> tuple[int, str]:
        wrapped = f"export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root\nsh -c {shlex.quote(script)} "
        try:
            with socket.create_connection(("127.0.0.1", self._port), 10.0) as connection:
                connection.settimeout(_COMMAND_S)
                connection.sendall(f"{wrapped} </dev/null 2>&1\ncode=$?; echo; echo $code\n".encode())
                connection.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda: connection.recv(65_536), b"")).decode(errors="replace")
        except OSError:
            return -1, ""
        lines = answer.rstrip("\n").split("\n")
        if not lines[-1].isdigit():
            return -1, answer
        return int(lines[-1]), "\n".join(lines[:-1]).strip()

    def wait_until(self, look: Callable[[], Any], what: str, within_s: float) -> Any:
        """Look again and again until there is something; the console is shown when it does not come."""
        deadline_s = time.monotonic() + within_s
        while not (found := look()):
            assert self._process is not None
            assert self._process.poll() is None, f"the machine ended before {what}:\n{self.console()}"
            assert time.monotonic() < deadline_s, f"not within {within_s:g} s: {what}\n{self.console()}"
            time.sleep(0.5)
        return found

    def console(self) -> str:
        """The end of what it printed."""
        self._console.seek(0)
        return self._console.read().decode(errors="replace")[-5000:]


def _run(*command: str, environ: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_MAKE_S,
        check=False,
        env={**os.environ, "LC_ALL": "C.UTF-8", **(environ or {})},
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:3])} ended with {done.returncode}:\n{done.stdout[-3000:]}")

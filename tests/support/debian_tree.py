"""A Debian root directory with the product below /opt/device-agent, made once per test run.

To make it takes a minute. ``SYSTEMD_TREE_CACHE=DIR`` keeps the bare Debian in a directory of yours for the next run.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

REPOSITORY = Path(__file__).parents[2]
PYTHON = (3, 11)
"""What Debian 12 has; compiled dependencies are copied from this environment, so it must be the same."""
SUITES = {"12": "bookworm", "13": "trixie"}
"""The releases of Debian that can be booted; systemd 252 and 257."""

_PACKAGES = "systemd,systemd-sysv,dbus,python3,apt"
# On Debian 13 the agent runs on Debian's own packages, of another Python than this environment's.
_DEPENDENCIES = "python3-httpx,python3-paho-mqtt,python3-pydantic,python3-yaml,python3-click"
_ATTEMPTS = 3
_MAKE_S = 600
# It mounts /proc and starts programs: both end with it, also when it is killed because its time is up.
_APART = ("setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc")
# This Debian survives no power cut, and need not.
_DPKG = (
    "force-unsafe-io\npath-exclude=/usr/share/doc/*\npath-exclude=/usr/share/man/*\npath-exclude=/usr/share/locale/*\n"
)
# Nobody reads them there, timers would reach for the network, and what is not there need not be copied.
_NOT_NEEDED = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "var/cache/apt/archives",
    "var/lib/apt/lists",
    "etc/systemd/system/timers.target.wants",
)


@contextlib.contextmanager
def shared_tree(run_id: str, release: str = "12") -> Iterator[Path]:
    """The tree of this test run. The first worker that needs it makes it, the last one that used it removes it.

    Args:
        run_id: the same for all workers of one run.
        release: of Debian, one of :data:`SUITES`.
    """
    folder = Path(tempfile.gettempdir(), f"device-agent-tree-{release}-{run_id}")
    tree, users = folder / "tree", folder / "users"
    users.mkdir(parents=True, exist_ok=True)
    mine = users / str(os.getpid())
    try:
        with _alone(folder):
            mine.touch()
            if not tree.exists():
                _make(folder / "making", release)
                (folder / "making").rename(tree)
        yield tree
    finally:
        with _alone(folder):
            mine.unlink()
            if not any(users.iterdir()):
                shutil.rmtree(folder)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(tree: Path, release: str) -> None:
    copy_bare_debian(tree, release)
    _install_product(tree, release)


def copy_bare_debian(tree: Path, release: str) -> None:
    """A Debian without the product: made, or copied from ``SYSTEMD_TREE_CACHE``."""
    cache = os.environ.get("SYSTEMD_TREE_CACHE")
    if not cache:
        _bare_debian(tree, release)
        return
    kept = Path(cache, f"debian-{release}")
    if not kept.exists():
        making = kept.with_name(f"{kept.name}.making")
        _bare_debian(making, release)
        making.rename(kept)
    _run("cp", "--archive", str(kept), str(tree))


def _bare_debian(tree: Path, release: str) -> None:
    for attempt in range(1, _ATTEMPTS + 1):
        shutil.rmtree(tree, ignore_errors=True)
        try:
            # Half the time, where it is installed; what it cannot do, the older program does at the next attempt.
            if attempt == 1 and shutil.which("mmdebstrap"):
                _with_mmdebstrap(tree, release)
            else:
                _with_debootstrap(tree, release)
        except RuntimeError:
            if attempt == _ATTEMPTS:
                raise
        else:
            break
    for name in _NOT_NEEDED:
        shutil.rmtree(tree / name, ignore_errors=True)
    # Each boot takes the machine's own name otherwise, and asks the host's resolver for it.
    (tree / "etc/hostname").write_text("device\n")
    (tree / "etc/machine-id").write_text("")


def _with_mmdebstrap(tree: Path, release: str) -> None:
    options = [f"--dpkgopt={option}" for option in _DPKG.splitlines()]
    what = ("--quiet", "--mode=root", "--variant=essential", f"--include={_packages(release)}")
    _run(*_APART, "mmdebstrap", *what, *options, SUITES[release], str(tree))


def _with_debootstrap(tree: Path, release: str) -> None:
    packages = f"--include={_packages(release)}"
    _run(*_APART, "debootstrap", "--foreign", "--variant=minbase", packages, SUITES[release], str(tree))
    (tree / "etc/dpkg/dpkg.cfg.d").mkdir(parents=True, exist_ok=True)
    (tree / "etc/dpkg/dpkg.cfg.d/tree").write_text(_DPKG)
    _run(*_APART, "chroot", str(tree), "/debootstrap/debootstrap", "--second-stage")


def _packages(release: str) -> str:
    return _PACKAGES if release == "12" else f"{_PACKAGES},{_DEPENDENCIES}"


def _install_product(tree: Path, release: str) -> None:
    """As ``pip install`` would, without an index: our own package from its source, the five others as they are here.

    Where Debian's own packages are the five others, the virtual environment sees them.
    """
    home = tree / "opt/device-agent"
    options = ["--without-pip", *(["--system-site-packages"] if release != "12" else [])]
    _run("chroot", str(tree), "/usr/bin/python3", "-m", "venv", *options, "/opt/device-agent")
    (packages,) = home.glob("lib/python3.*/site-packages")
    _run(
        *(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-deps", "--no-build-isolation"),
        *("--no-cache", "--link-mode=copy", "--python", sys.executable, "--target", str(packages), str(REPOSITORY)),
    )
    if release == "12":
        for name in sorted(_needed_by("device-agent") - {"device-agent"}):
            _copy_distribution(name, packages)
    for package in ("agent", "gateway"):
        program = home / f"bin/device-{package}"
        program.write_text(
            f"#!/opt/device-agent/bin/python\nimport sys\nfrom {package}.cli import main\nsys.exit(main())\n"
        )
        program.chmod(0o755)
    shutil.copytree(REPOSITORY / "systemd", tree / "opt/systemd")
    _run("chroot", str(tree), "/opt/device-agent/bin/python", "-m", "compileall", "-q", "/opt/device-agent/lib")


def _needed_by(name: str) -> set[str]:
    found = {name}
    for text in importlib.metadata.requires(name) or []:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            found |= _needed_by(requirement.name)
    return found


def _copy_distribution(name: str, packages: Path) -> None:
    for file in importlib.metadata.files(name) or []:
        if ".." not in file.parts and file.suffix != ".pyc":
            target = packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.locate(), target)


def _run(*command: str) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_MAKE_S,
        check=False,
        env={**os.environ, "LC_ALL": "C.UTF-8", "PYTHONPATH": ""},
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-3000:]}")

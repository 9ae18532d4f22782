"""``make deb``: the packages ``device-agent`` and ``device-gateway`` for Debian 12 and 13 and for Raspberry Pi OS.

    python tools/build_deb.py [--out dist/deb] [--architecture amd64 ...] [--package device-agent ...]

A package holds the program and the pinned wheels of each Python that these systems ship, unpacked: nothing is compiled
or downloaded on the device. The same commit gives the same bytes: times are the commit's, modes and owners are set,
the files are in one order. An architecture for which a pinned wheel is missing is left out, and said.

Needs ``dpkg-deb`` and the package index. Exit codes: 0 built, 1 an architecture that was asked for has no wheels.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from email.parser import Parser
from email.utils import format_datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click
from click_man.core import write_man_pages

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.elf_debug import without_debug  # noqa: E402 - found by the line above

TEMPLATES: Final = ROOT / "debian"
_GIT: Final = shutil.which("git") or "git"
PYTHONS: Final = ("3.11", "3.13")
"""What Debian 12 and 13 ship, and Raspberry Pi OS with them."""
PLATFORMS: Final = {
    "amd64": ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"),
    "arm64": ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"),
    "armhf": ("manylinux_2_31_armv7l", "manylinux_2_28_armv7l", "manylinux_2_17_armv7l", "manylinux2014_armv7l"),
}
"""Debian's architecture -> the wheels that run on glibc 2.36, which Debian 12 has."""
MAINTAINER: Final = "Device Agent maintainers <maintainers@device-agent.invalid>"


@dataclass(frozen=True, slots=True)
class Package:
    """What one of the packages is made of.

    Attributes:
        name: of the package, its program and its unit.
        requirements: the lock file with its wheels.
        modules: top-level packages of this distribution that it needs.
        command: module and function of the program.
        units: of systemd, the program's own first.
        launchers: further programs: path -> lines that start them.
        examples: files that belong into its documentation.
        release: the link to a release that runs in place of the package; empty where there are none.
    """

    name: str
    requirements: str
    modules: tuple[str, ...]
    command: str
    units: tuple[str, ...]
    launchers: dict[str, str] = field(default_factory=dict)
    examples: tuple[str, ...] = ()
    release: str = ""


PACKAGES: Final = (
    Package(
        "device-agent",
        "device.txt",
        ("agent",),
        "agent.cli:main",
        (
            "device-agent.service",
            "device-agent-reboot.timer",
            "device-agent-update.path",
            "device-agent-trial.service",
            "device-agent-reboot.path",
            "device-agent-reboot.service",
            "device-agent-update.service",
        ),
        {"usr/libexec/device-agent-update": "import runpy\n\nrunpy.run_module('agent.update', run_name='__main__')\n"},
        ("configs/agent-http.yaml", "configs/agent-mqtt.yaml"),
        "/var/lib/device-agent-releases/current",
    ),
    Package(
        "device-gateway",
        "gateway.txt",
        ("agent", "gateway"),
        "gateway.cli:main",
        ("device-gateway.service", "device-gateway-broker.path", "device-gateway-broker.service"),
        {},
        ("configs/gateway.yaml",),
    ),
)


_STARTED_BY_OTHERS: Final = frozenset(
    {
        "device-agent-reboot.path",
        "device-agent-reboot.service",
        "device-agent-update.service",
        "device-gateway-broker.service",
    }
)
PACKAGE: Final = "release.json"


class WheelsMissing(Exception):
    """An architecture has not all of the pinned wheels."""


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Build the Debian packages.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "deb", help="folder for the packages")
    parser.add_argument("--architecture", action="append", choices=PLATFORMS, help="one of them alone; can be repeated")
    parser.add_argument(
        "--package", action="append", choices=[each.name for each in PACKAGES], help="one of them alone"
    )
    parser.add_argument("--level", type=int, default=9, help="of the compression, 0 to 9 (default 9)")
    arguments = parser.parse_args()
    if shutil.which("dpkg-deb") is None:
        parser.error("dpkg-deb is missing: build on Debian or Ubuntu, or install the package dpkg")
    os.umask(0o022)
    os.environ["SOURCE_DATE_EPOCH"] = _git("log", "-1", "--format=%ct")
    arguments.out.mkdir(parents=True, exist_ok=True)
    left_out = 0
    for package in PACKAGES:
        if arguments.package and package.name not in arguments.package:
            continue
        for architecture in arguments.architecture or PLATFORMS:
            try:
                built = build(package, architecture, arguments.out, arguments.level)
            except WheelsMissing as error:
                print(f"left out: {package.name} for {architecture}: {error}")
                left_out += bool(arguments.architecture)
            else:
                print(f"{built}  {built.stat().st_size / 1024 / 1024:.1f} MiB")
    return 1 if left_out else 0


def build(package: Package, architecture: str, out: Path, level: int = 9) -> Path:
    """Build one package.

    Args:
        package: which.
        architecture: Debian's name of it.
        out: folder that gets the file.
        level: of the compression.

    Returns:
        The file.

    Raises:
        WheelsMissing: a pinned wheel does not exist for the architecture.
    """
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary, "tree")
        library = tree / "usr/lib" / package.name
        fill_library(package, architecture, Path(temporary), library)
        _add_files(package, tree)
        if package.release:
            _write(library / PACKAGE, json.dumps(program_members(architecture), indent=1) + "\n")
        _add_documents(package, tree, library)
        _add_control(package, architecture, tree)
        _set_times_and_modes(tree)
        built = out / f"{package.name}_{version()}_{architecture}.deb"
        # One thread: how xz divides its work would otherwise depend on the machine.
        options = ("-Zxz", f"-z{level}", "--threads-max=1", "--root-owner-group")
        _run("dpkg-deb", *options, "--build", str(tree), str(built))
    return built


def program_members(architecture: str) -> dict[str, Any]:
    """The members of a manifest, and of the package's ``release.json``, that say which program it is.

    Args:
        architecture: Debian's name of it.
    """
    from agent.store.sqlite import VERSION

    return {"version": version(), "architecture": architecture, "store_schema": VERSION}


def fill_library(package: Package, architecture: str, temporary: Path, library: Path) -> None:
    """The libraries and the program, as package and release have them.

    Args:
        package: which.
        architecture: Debian's name of it.
        temporary: a folder for downloads.
        library: the folder to fill.

    Raises:
        WheelsMissing: a pinned wheel does not exist for the architecture.
    """
    _unpack_wheels(package, architecture, temporary / "wheels", library)
    _unpack_project(package, temporary / "project", library / "common")


def _unpack_wheels(package: Package, architecture: str, downloads: Path, library: Path) -> None:
    """What every Python shares goes into ``common``, the rest into a folder for each Python."""
    wheels = {python: _download(package, architecture, python, downloads / python) for python in PYTHONS}
    shared = set.intersection(*({wheel.name for wheel in those} for those in wheels.values()))
    for python, those in wheels.items():
        own = library / f"cp{python.replace('.', '')}"
        for wheel in those:
            if wheel.name not in shared:
                _unpack(wheel, own)
            elif python == PYTHONS[0]:
                _unpack(wheel, library / "common")


def _download(package: Package, architecture: str, python: str, folder: Path) -> list[Path]:
    abi = f"cp{python.replace('.', '')}"
    platforms = [word for each in PLATFORMS[architecture] for word in ("--platform", each)]
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input")
    which = ("--no-deps", "--require-hashes", "--only-binary", ":all:", "--implementation", "cp")
    abis = ("--python-version", python, "--abi", abi, "--abi", "abi3", "--abi", "none")
    requirements = ("--requirement", str(ROOT / "requirements" / package.requirements))
    command = (*pip, *which, *abis, *platforms, "--dest", str(folder), *requirements)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        missing = [line for line in done.stderr.splitlines() if "No matching distribution" in line]
        if not missing:
            raise SystemExit(f"error: the wheels could not be downloaded:\n{done.stderr}")
        raise WheelsMissing(f"there is no wheel of {missing[0].rpartition(' for ')[2]} for Python {python}")
    return sorted(folder.glob("*.whl"))


def _unpack(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        compiled = [folder / name for name in archive.namelist() if name.endswith(".so")]
    for library in compiled:
        library.write_bytes(without_debug(library.read_bytes()))


def _unpack_project(package: Package, folder: Path, common: Path) -> None:
    """The modules of this distribution that the package needs, and its metadata."""
    _run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder))
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        wanted = [
            name
            for name in archive.namelist()
            if name.partition("/")[0] in package.modules or name.endswith(("/METADATA", "/licenses/LICENSE"))
        ]
        archive.extractall(common, wanted)


def _add_files(package: Package, tree: Path) -> None:
    _write(tree / "usr/bin" / package.name, launcher(package, package.name, _start_of(package.command)), 0o755)
    for path, start in package.launchers.items():
        # Root's own programs are always the package's.
        _write(tree / path, launcher(replace(package, release=""), Path(path).name, start), 0o755)
    for unit in package.units:
        text = (ROOT / "systemd" / unit).read_text(encoding="utf-8")
        _write(tree / "usr/lib/systemd/system" / unit, packaged_unit(text, package.name))
    _copy(ROOT / "systemd/sysusers.d" / f"{package.name}.conf", tree / "usr/lib/sysusers.d" / f"{package.name}.conf")
    completion = tree / "usr/share/bash-completion/completions" / package.name
    variable = f"_{package.name.replace('-', '_').upper()}_COMPLETE"
    _write(completion, _ask(package, {variable: "bash_source"}))


def packaged_unit(text: str, name: str) -> str:
    """A unit of ``systemd/`` as the package has it: programs below ``/usr``, started once there is a configuration.

    Args:
        text: of the unit.
        name: of the package.
    """
    text = text.replace(f"/opt/device-agent/bin/{name}", f"/usr/bin/{name}")
    text = text.replace("/opt/device-agent/bin/python -I -m agent.update", "/usr/libexec/device-agent-update")
    if "[Install]" in text and f"/usr/bin/{name} run" in text:
        why = "# Enabled from the installation on, and started once there is a configuration."
        condition = f"{why}\nConditionPathExists=/etc/{name}/config.yaml\n"
        text = text.replace("\n[Service]\n", f"{condition}\n[Service]\n", 1)
    if f"/usr/bin/{name} run" in text and name == "device-agent":
        why = (
            "# Counts the start while a release is on trial, and lets the release before run again when it did not do."
        )
        guard = f"{why}\nExecStartPre=-+/usr/libexec/device-agent-update start\n"
        text = text.replace("ExecStart=", f"{guard}ExecStart=", 1)
        text = text.replace(
            "\n[Service]\n", "# It judges a release on trial.\nWants=device-agent-trial.service\n\n[Service]\n", 1
        )
    return text


def _start_of(command: str) -> str:
    module, _, function = command.partition(":")
    return f"from {module} import {function}  # noqa: E402\n\nsys.exit({function}())\n"


def launcher(package: Package, program: str, start: str, root: str = "") -> str:
    """The text of a program that finds the libraries of this system's Python.

    Args:
        package: of the libraries.
        program: its name.
        start: the lines that start it.
        root: where the file system of the device begins.
    """
    text = (TEMPLATES / "launcher.in").read_text(encoding="utf-8")
    release = package.release and root + package.release
    values = {
        "PROGRAM": program,
        "LIBRARIES": f"{root}/usr/lib/{package.name}",
        "PLUGINS": f"{root}/usr/local/lib/{package.name}/plugins",
        "RELEASE": release,
        "START": start.rstrip(),
    }
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def _add_documents(package: Package, tree: Path, library: Path) -> None:
    documents = tree / "usr/share/doc" / package.name
    _write(documents / "copyright", _copyright(library))
    for example in package.examples:
        _copy(ROOT / example, documents / "examples" / Path(example).name)
    man = tree / "usr/share/man/man1"
    man.mkdir(parents=True)
    write_man_pages(package.name, _whole_program(package), version=version(), target_dir=str(man))
    _write(documents / "changelog", _changelog(package))
    _write(documents / "NEWS", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    for page in sorted([*man.iterdir(), documents / "changelog", documents / "NEWS"]):
        _run("gzip", "--best", "--no-name", str(page))
    _copy(TEMPLATES / package.name / "lintian-overrides", tree / "usr/share/lintian/overrides" / package.name)


def _changelog(package: Package) -> str:
    """Debian's own form of it, one entry; what has changed is in NEWS."""
    return (
        f"{package.name} ({version()}) stable; urgency=medium\n\n"
        "  * What has changed is in NEWS.gz beside this file.\n\n"
        f" -- {MAINTAINER}  {format_datetime(dt.datetime.fromtimestamp(commit_time(), dt.UTC))}\n"
    )


def _whole_program(package: Package) -> click.Command:
    """The program with all its commands imported: the pages are written from the commands themselves."""
    module, _, _ = package.command.partition(":")
    program: click.Command = getattr(import_module(module), package.name.replace("-", "_"))
    return _imported(program)


def _imported(command: click.Command) -> click.Command:
    if not isinstance(command, click.Group):
        return command
    context = click.Context(command, info_name=command.name)
    commands = {name: command.get_command(context, name) for name in command.list_commands(context)}
    there = {name: _imported(each) for name, each in commands.items() if each is not None}
    return click.Group(command.name, there, help=command.help, params=command.params, short_help=command.short_help)


def _ask(package: Package, environment: dict[str, str]) -> str:
    module, _, function = package.command.partition(":")
    program = f"import sys; sys.argv[0] = {package.name!r}; from {module} import {function}; sys.exit({function}())"
    done = subprocess.run(
        (sys.executable, "-c", program),
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def _copyright(library: Path) -> str:
    lines = [
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/",
        "Upstream-Name: device-agent",
        "",
        "Files: *",
        f"Copyright: {dt.datetime.fromtimestamp(commit_time(), dt.UTC).year} The Device Agent maintainers",
        "License: Apache-2.0",
        " On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.",
    ]
    for where, name, licence, author in sorted(set(_libraries(library))):
        lines += ["", f"Files: {where}", f"Copyright: {author}", f"License: {licence}"]
        lines += [f" Of the library {name}; its text is in its .dist-info folder in /usr/lib."]
    return "\n".join(lines) + "\n"


def _libraries(library: Path) -> Iterator[tuple[str, str, str, str]]:
    for metadata in library.glob("*/*.dist-info/METADATA"):
        found = Parser().parsestr(metadata.read_text(encoding="utf-8"))
        name = found["Name"]
        if name == "device-agent":
            continue
        licence = found["License-Expression"] or (found["License"] or "see-its-licence-file").splitlines()[0]
        author = found["Author"] or found["Author-email"] or found["Maintainer"] or f"the authors of {name}"
        folder = metadata.parent.name.partition("-")[0]
        yield f"usr/lib/*/{folder}*", name, licence.strip().replace(" ", "-"), " ".join(author.split())


def _add_control(package: Package, architecture: str, tree: Path) -> None:
    size = sum(file.stat().st_size for file in tree.rglob("*") if file.is_file())
    values = {
        "PACKAGE": package.name,
        "VERSION": version(),
        "MAINTAINER": MAINTAINER,
        "ARCHITECTURE": architecture,
        "INSTALLED_SIZE": str(-(-size // 1024)),
        "UNITS": " ".join(unit for unit in package.units if unit not in _STARTED_BY_OTHERS),
    }
    control = tree / "DEBIAN"
    for source, mode in ((f"{package.name}/control", 0o644), ("postinst", 0o755), ("prerm", 0o755), ("postrm", 0o755)):
        text = (TEMPLATES / source).read_text(encoding="utf-8")
        for name, value in values.items():
            text = text.replace(f"@{name}@", value)
        _write(control / Path(source).name, text, mode)


def _set_times_and_modes(tree: Path) -> None:
    """Folders 755, programs 755, other files 644; the time of the commit."""
    epoch = commit_time()
    executable = {"usr/bin", "usr/libexec", "DEBIAN"}
    for path in [tree, *tree.rglob("*")]:
        folder = path.parent.relative_to(tree).as_posix() if path != tree else ""
        runs = path.is_dir() or (folder in executable and path.name != "control")
        path.chmod(0o755 if runs else 0o644)
        os.utime(path, (epoch, epoch))


def commit_time() -> int:
    """When this commit was made, seconds since the epoch."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct"))


def version() -> str:
    """The version of this checkout."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def _copy(source: Path, target: Path) -> None:
    _write(target, source.read_text(encoding="utf-8"))


def _git(*words: str) -> str:
    return subprocess.run((_GIT, *words), cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"error: {' '.join(command[:3])} ended with {done.returncode}:\n{done.stderr}")


if __name__ == "__main__":
    sys.exit(main())

"""One program that is installed under systemd, the agent or the gateway: its unit, user, credentials and files.

Everything is read once, when the first check asks for it; nothing is written.
"""

from __future__ import annotations

import os
import pwd
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final, TypedDict

from agent.config import Credentials, read_credentials
from agent.config.model import AuthConfig
from agent.doctor.unit_files import UnitCredential, read_credentials_of_unit
from agent.errors import ConfigurationError, ServiceError
from agent.process.running import ProgramNotStarted, run_program

_COMMAND_TIMEOUT_S: Final = 5.0
_PROPERTIES: Final = "LoadState,UnitFileState,ActiveState,SubState,Result,FragmentPath,User"


class Options(TypedDict, total=False):
    """Options of :class:`InstalledProgram`: the file system, programs and users that it examines."""

    root: Path
    run: Callable[[Sequence[str]], str | None]
    user_id: int
    find_user: Callable[[str], tuple[int, frozenset[int]] | None]


class InstalledProgram(ABC):
    """One program that is installed under systemd.

    Attributes:
        name: of the program, its user and, with ``.service``, its unit.

    Args:
        environ: of this process.
        root: where ``/proc``, ``/run`` and ``/etc`` are looked for; another one in tests.
        run: runs a system program and returns its output; None when it is not there or failed.
        user_id: who runs the doctor; this process's user by default.
        find_user: a user's id and the ids of its groups by its name; None when there is no such user.
    """

    name: ClassVar[str]

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        root: Path = Path("/"),
        run: Callable[[Sequence[str]], str | None] | None = None,
        user_id: int | None = None,
        find_user: Callable[[str], tuple[int, frozenset[int]] | None] | None = None,
    ) -> None:
        self.environ = environ
        self.root = root
        self.run = run or run_command
        self._find_user = find_user or _find_user
        self.user_id = os.geteuid() if user_id is None else user_id

    @property
    def unit_name(self) -> str:
        """The unit, as systemd has it."""
        return f"{self.name}.service"

    @property
    @abstractmethod
    def config(self) -> Any:
        """The configuration, a pydantic model with ``state_dir``; only for checks that come after ``configuration``."""

    @property
    @abstractmethod
    def auth(self) -> AuthConfig:
        """Which files hold the credentials."""

    @property
    @abstractmethod
    def further_keys(self) -> tuple[Path, ...]:
        """Private keys and passwords that the configuration names elsewhere."""

    @cached_property
    def credentials(self) -> Credentials:
        """The program's credentials: its own files, or those that its unit hands over.

        Raises:
            ConfigurationError: they cannot be read by whoever runs the doctor, or are wrong.
        """
        auth = self.auth
        fields = type(auth).model_fields
        given = {
            f"{credential.name}_file": path
            for credential in self.unit_credentials
            if f"{credential.name}_file" in fields and not credential.is_encrypted
            for path in self.credential_files(credential)[:1]
        }
        try:
            return read_credentials(auth, self.environ)
        except ConfigurationError:
            if not given:
                raise
            return read_credentials(auth.model_copy(update=given), self.environ)

    @cached_property
    def has_systemd(self) -> bool:
        """Whether this machine was booted with systemd (sd_booted(3))."""
        return self.path("/run/systemd/system").is_dir()

    @cached_property
    def unit(self) -> Mapping[str, str]:
        """Properties of the unit; empty without systemd."""
        return self.unit_of(self.unit_name)

    @cached_property
    def unit_credentials(self) -> tuple[UnitCredential, ...]:
        """Each credential that the unit hands over, the encrypted ones too."""
        return read_credentials_of_unit(self.unit_text)

    @cached_property
    def unit_text(self) -> str:
        """The unit's file and its drop-ins, in the order in which systemd reads them; empty without a unit."""
        return (self.run(unit_cat(self.unit_name)) or "") if self.unit else ""

    def credential_files(self, credential: UnitCredential) -> list[Path]:
        """The files of a credential that are there; systemd takes the first."""
        return [path for path in map(self.path, credential.paths) if path.exists()]

    @property
    def has_sealed_credentials(self) -> bool:
        """The unit hands over credentials that only the service itself can read."""
        return any(credential.is_encrypted for credential in self.unit_credentials)

    @cached_property
    def user(self) -> tuple[int, frozenset[int]] | None:
        """Id and groups of the user as whom the unit runs the program; None when that is not known."""
        name = self.unit.get("User")
        return self._find_user(name) if name else None

    def user_may_read(self, path: Path) -> bool:
        """Whether the modes of a file and of its directories let the program's user read it; True when not known."""
        if self.user is None or self.user[0] == 0:
            return True
        try:
            folders = [each for each in path.resolve().parents if each.is_relative_to(self.root)]
            return self._lets(path, 0o4) and all(self._lets(folder, 0o1) for folder in folders)
        except OSError:
            return True

    def _lets(self, path: Path, right: int) -> bool:
        assert self.user is not None  # noqa: S101 - the caller looked
        status = path.stat()
        user_id, groups = self.user
        shift = 6 if status.st_uid == user_id else 3 if status.st_gid in groups else 0
        return bool(status.st_mode >> shift & right)

    def may_read(self, path: Path) -> bool:
        """Whether whoever runs the doctor may read this file."""
        return self.user_id == 0 or path.stat().st_uid == self.user_id or bool(path.stat().st_mode & 0o044)

    def unit_of(self, name: str) -> Mapping[str, str]:
        """Properties of a unit, also of one that is not there; empty when systemd cannot be asked."""
        if not self.has_systemd:
            return {}
        text = self.run(unit_show(name))
        properties: dict[str, str] = {}
        for line in (text or "").splitlines():
            key, sign, value = line.partition("=")
            if sign:
                # A list has a line for each item.
                properties[key] = f"{properties[key]} {value}" if key in properties else value
        return properties

    def path(self, absolute: str) -> Path:
        """A path of the system, below :attr:`root`."""
        return self.root / absolute.lstrip("/")

    def read(self, absolute: str) -> str | None:
        """A small file of the system; None when it cannot be read."""
        try:
            return self.path(absolute).read_text("utf-8", "replace")
        except OSError:
            return None


def _find_user(name: str) -> tuple[int, frozenset[int]] | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return entry.pw_uid, frozenset(os.getgrouplist(name, entry.pw_gid))


def unit_show(name: str) -> list[str]:
    """The program that prints a unit's properties."""
    return ["systemctl", "show", name, "--no-pager", f"--property={_PROPERTIES}"]


def unit_cat(name: str) -> list[str]:
    """The program that prints a unit's file and its drop-ins, in the order in which systemd reads them."""
    return ["systemctl", "cat", name, "--no-pager"]


def run_command(argv: Sequence[str]) -> str | None:
    """A system program's output; None when it is not there, fails or takes too long."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
    try:
        run = run_program(argv, timeout_s=_COMMAND_TIMEOUT_S, environment=environment)
    except ProgramNotStarted:
        return None
    return run.output.decode("utf-8", "replace") if run.exit_code == 0 else None


def words_of(error: BaseException) -> str:
    """An error as one line."""
    if isinstance(error, ConfigurationError):
        return "; ".join(error.faults)
    if isinstance(error, OSError) and not isinstance(error, ServiceError):
        return os.strerror(error.errno) if error.errno else str(error)
    return " ".join(str(error).split()) or type(error).__name__

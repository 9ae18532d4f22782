"""``write_file``: a file of the sender's, in folders that the device's owner has named.

Off until the configuration names a folder. Writing the same file twice does the same as once. The file is written
beside its place and renamed, which follows no link: whatever appears under its name meanwhile is replaced, not written
through.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import stat
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, field_validator, model_validator

from agent.core.values import Contract, JsonObject
from agent.files import replace_file
from agent.handlers.base import (
    CommandContext,
    Handler,
    HandlerFailed,
    HandlerPayload,
    HandlerRejected,
    HandlerSettings,
)

# Where a file of a sender's would take the device over, whatever a configuration says.
_NEVER: Final = frozenset(
    ["/", "/bin", "/boot", "/dev", "/etc", "/lib", "/proc", "/root", "/run", "/sbin", "/sys", "/usr", "/var"]
)
_NAME_BYTES: Final = 250
"""The longest name, with room for the name of the file while it is written."""


class WriteFile(Handler):
    """Writes one file."""

    name = "write_file"
    description = "Writes a file in the folders that the configuration names."
    contract = Contract.IDEMPOTENT
    timeout_s = 30.0
    needs = "a folder in commands.handlers.write_file.settings.folders"

    class Payload(HandlerPayload):
        """The payload: the file to write, and its content."""

        path: str = Field(min_length=2, max_length=4096, description="Absolute: one of the folders and a name.")
        text: str | None = Field(default=None, description="The content, written as UTF-8.")
        base64: str | None = Field(default=None, description="The content, where it is no text.")
        mode: str = Field(default="0644", pattern=r"^0?[0-7]{3}$", description="Permission bits, octal.")
        sha256: str | None = Field(
            default=None, pattern=r"^[0-9a-f]{64}$", description="Of the content; another one refuses it."
        )

        @model_validator(mode="after")
        def _check_one_given(self) -> Self:
            if (self.text is None) == (self.base64 is None):
                raise ValueError("give either 'text' or 'base64'")
            return self

    class Settings(HandlerSettings):
        """Where, and how much."""

        folders: tuple[str, ...] = Field(
            default=(), description="Absolute; files may be written in these only, not below."
        )
        max_bytes: Annotated[int, Field(ge=1, le=16 * 1024 * 1024)] = Field(
            default=65536, description="The largest file."
        )
        modes: str = Field(
            default="0644", pattern=r"^0?[0-7]{3}$", description="The permission bits that a file may have, octal."
        )

        @field_validator("folders")
        @classmethod
        def _check_folders(cls, folders: tuple[str, ...]) -> tuple[str, ...]:
            for folder in folders:
                if not folder.startswith("/") or folder.startswith("//") or ".." in folder.split("/"):
                    raise ValueError(f"{folder!r} must be an absolute path without '..'")
                if os.path.normpath(folder) in _NEVER:
                    raise ValueError(f"{folder!r} holds what runs this device; name a folder of your own below it")
            return tuple(os.path.normpath(folder) for folder in folders)

    def check(self) -> None:
        """Check that a folder is configured, and that each exists and may be written.

        Raises:
            ValueError: it is not so.
        """
        folders = self._settings().folders
        if not folders:
            raise ValueError("no folder is configured; name one in commands.handlers.write_file.settings.folders")
        for folder in folders:
            if not Path(folder).is_dir():
                raise ValueError(f"{folder} is no folder; make it, or name another one")
            if not os.access(folder, os.W_OK | os.X_OK):
                raise ValueError(f"{folder} may not be written by this user (under systemd: ReadWritePaths={folder})")

    def handle(self, payload: Payload, context: CommandContext) -> JsonObject:
        """The path, its size and digest.

        Raises:
            HandlerRejected: the path, the mode, the size or the content is not what it may be; nothing was written.
            HandlerFailed: the disk refused; what was there is there.
        """
        settings = self._settings()
        content, mode = self._content(payload), int(payload.mode, 8)
        if mode & ~int(settings.modes, 8):
            raise HandlerRejected("mode_not_allowed", f"{payload.mode} has bits that are not in {settings.modes}")
        path = self._place(payload.path)
        try:
            replace_file(path, content, mode, durable=True)
        except OSError as error:
            raise HandlerFailed("not_written", f"{payload.path}: {error.strerror}") from error
        context.log.info("wrote %s, %d bytes", payload.path, len(content))
        return {
            "path": payload.path,
            "size_bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "mode": f"{mode:04o}",
        }

    def _content(self, payload: Payload) -> bytes:
        try:
            if payload.text is not None:
                content = payload.text.encode()
            else:
                content = base64.b64decode(payload.base64 or "", validate=True)
        except (binascii.Error, ValueError) as error:
            raise HandlerRejected("invalid_content", f"the content cannot be decoded: {error}") from error
        limit = self._settings().max_bytes
        if len(content) > limit:
            raise HandlerRejected("too_large", f"{len(content)} bytes are more than the {limit} that are allowed")
        if payload.sha256 not in {None, hashlib.sha256(content).hexdigest()}:
            raise HandlerRejected("wrong_sha256", "the content is not the one that the sha256 names; send it again")
        return content

    def _place(self, path: str) -> Path:
        """The file, which is not there yet or is a plain one of this user's.

        Raises:
            HandlerRejected: it is another one.
        """
        folder, _, name = path.rpartition("/")
        if folder not in self._settings().folders:
            folders = " or ".join(self._settings().folders)
            raise HandlerRejected("path_not_allowed", f"it must be a name in {folders}, such as {folders}/NAME")
        if name in {"", ".", ".."} or not name.isprintable() or len(name.encode()) > _NAME_BYTES:
            raise HandlerRejected("path_not_allowed", f"its name must be 1 to {_NAME_BYTES} bytes of printable text")
        place = Path(folder, name)
        try:
            found = place.lstat()
        except FileNotFoundError:
            return place
        except OSError as error:
            raise HandlerFailed("not_written", f"{path}: {error.strerror}") from error
        runs_as_another = found.st_mode & (stat.S_ISUID | stat.S_ISGID)
        if not stat.S_ISREG(found.st_mode) or runs_as_another or found.st_nlink > 1 or found.st_uid != os.geteuid():
            why = "a link, a special file, another user's, or one that runs with other rights: remove it on the device"
            raise HandlerRejected("path_not_allowed", f"what is there is {why} first")
        return place

    def _settings(self) -> Settings:
        return self.settings if isinstance(self.settings, self.Settings) else self.Settings()

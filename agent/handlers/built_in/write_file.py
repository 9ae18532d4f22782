"""``write_file``: a file of the sender's, below folders that the device's owner has named.

Off until the configuration names a folder. Writing the same file twice does the same as once.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, field_validator, model_validator

from agent.core.values import Contract, JsonObject
from agent.handlers.base import (
    CommandContext,
    Handler,
    HandlerFailed,
    HandlerPayload,
    HandlerRejected,
    HandlerSettings,
)
from agent.handlers.openat_write import OutOfBounds, opened_folder, parts_below, replace_below

# Where a file of a sender's would take the device over, whatever a configuration says.
_NEVER: Final = (
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
    "/var",
)


class WriteFile(Handler):
    """Writes one file."""

    name = "write_file"
    description = "Writes a file below the folders that the configuration names."
    contract = Contract.IDEMPOTENT
    timeout_s = 30.0
    needs = "a folder in commands.handlers.write_file.settings.folders"

    class Payload(HandlerPayload):
        """The payload: the file to write, and its content."""

        path: str = Field(min_length=2, max_length=4096, description="Absolute, below one of the folders.")
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

        folders: tuple[str, ...] = Field(default=(), description="Absolute; files may be written below these only.")
        max_bytes: Annotated[int, Field(ge=1, le=16 * 1024 * 1024)] = Field(
            default=65536, description="The largest file."
        )
        modes: str = Field(
            default="0644", pattern=r"^0?[0-7]{3}$", description="The permission bits that a file may have, octal."
        )
        make_folders: bool = Field(default=False, description="Make folders on the way that are missing.")

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
        folder, steps = self._place(payload.path)
        try:
            with opened_folder(folder, steps[:-1], make=settings.make_folders) as fd:
                replace_below(fd, steps[-1], content, mode)
        except OutOfBounds as error:
            raise HandlerRejected("path_not_allowed", str(error)) from error
        except FileNotFoundError as error:
            text = f"a folder on the way to {payload.path} is missing; make it, or set make_folders"
            raise HandlerFailed("no_such_folder", text) from error
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

    def _place(self, path: str) -> tuple[str, tuple[str, ...]]:
        folders = self._settings().folders
        try:
            for folder in folders:
                steps = parts_below(folder, path)
                if steps:
                    return folder, steps
        except OutOfBounds as error:
            raise HandlerRejected("path_not_allowed", str(error)) from error
        raise HandlerRejected("path_not_allowed", f"it is not below {' or '.join(folders)}")

    def _settings(self) -> Settings:
        return self.settings if isinstance(self.settings, self.Settings) else self.Settings()

"""``write_file``: a file of the sender's, in folders that the device's owner has named.

Off until the configuration names a folder. The file is written beside its place and renamed, so it is the old one or
the new one at every instant, and whatever has its name, such as a link, is replaced and not followed.
"""

from __future__ import annotations

import hashlib
import os
from base64 import b64decode
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
        base64: str = Field(default="", description="The content, where it is no text.")

        @model_validator(mode="after")
        def _check_one_given(self) -> Self:
            if (self.text is None) == ("base64" not in self.model_fields_set):
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
        """Check that a folder is configured, and that each may be written.

        Raises:
            ValueError: it is not so.
        """
        if not self.settings.folders:
            raise ValueError("no folder is configured; name one in commands.handlers.write_file.settings.folders")
        for folder in self.settings.folders:
            if not os.access(folder, os.W_OK | os.X_OK) or not Path(folder).is_dir():
                fix = f"make it, or let this user write it (under systemd: ReadWritePaths={folder})"
                raise ValueError(f"{folder} is no folder that this user may write: {fix}")

    def handle(self, payload: Payload, context: CommandContext) -> JsonObject:
        """The path, its size and digest.

        Raises:
            HandlerRejected: the path or the content is not what it may be; nothing was written.
            HandlerFailed: the disk refused; what was there is there.
        """
        folder, _, name = payload.path.rpartition("/")
        if folder not in self.settings.folders:
            folders = " or ".join(self.settings.folders)
            raise HandlerRejected("path_not_allowed", f"it must be a name in {folders}, such as {folders}/NAME")
        if name in {"", ".", ".."} or not name.isprintable() or len(name.encode()) > _NAME_BYTES:
            raise HandlerRejected("path_not_allowed", f"its name must be 1 to {_NAME_BYTES} bytes of printable text")
        try:
            content = b64decode(payload.base64, validate=True) if payload.text is None else payload.text.encode()
        except ValueError as error:
            raise HandlerRejected("invalid_content", f"the content cannot be decoded: {error}") from error
        limit = self.settings.max_bytes
        if len(content) > limit:
            raise HandlerRejected("too_large", f"{len(content)} bytes are more than the {limit} that are allowed")
        try:
            replace_file(Path(folder, name), content, 0o644, durable=True)
        except OSError as error:
            raise HandlerFailed("not_written", f"{payload.path}: {error.strerror}") from error
        context.log.info("wrote %s, %d bytes", payload.path, len(content))
        return {"path": payload.path, "size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

"""Key pairs that the simulator makes for its own local service, and the files that hold them."""

from __future__ import annotations

import secrets
import shlex
from dataclasses import dataclass
from pathlib import Path

from agent.errors import ConfigurationError
from agent.wire.secret import Credential, KeyPair, Secret
from simulator.whole_files import cannot_write, write_whole


@dataclass(frozen=True, slots=True)
class Keys(Credential):
    """The two keys of an account.

    Attributes:
        secret_path: the file of mode 600 that holds the secret key; None when it is in memory only.

    Raises:
        ConfigurationError: they cannot be keys, or the two are swapped.
    """

    api_key: str
    secret_key: Secret
    secret_path: Path | None = None

    def __post_init__(self) -> None:
        KeyPair(self.api_key, self.secret_key)

    def headers(self) -> dict[str, str]:
        """As :meth:`KeyPair.headers`."""
        return {"x-api-key": self.api_key, "x-secret-key": self.secret_key.reveal()}


def keep_keys(folder: Path) -> Keys:
    """The key pair in the files ``api_key`` and ``secret_key`` of a folder; a fresh one where there is none yet.

    Raises:
        ConfigurationError: the folder cannot be written, or a file cannot be read.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (folder / "secret_key").exists():
            write_secret(folder / "api_key", f"mk_local_{secrets.token_hex(8)}")
            write_secret(folder / "secret_key", f"msk_local_{secrets.token_hex(20)}")
        api_key, secret_key = ((folder / name).read_text("ascii").strip() for name in ("api_key", "secret_key"))
        return Keys(api_key, Secret(secret_key), folder / "secret_key")
    except OSError as error:
        raise ConfigurationError([cannot_write(folder, error, "another --data")], "--data") from None
    except UnicodeDecodeError:
        raise ConfigurationError(
            [f"{folder}: a key file is not text; remove it, or give another --data"], "--data"
        ) from None


def write_secret(path: Path, text: str) -> Path:
    """Write a file of mode 600; its path."""
    return write_whole(path, f"{text}\n", mode=0o600)


def curl_line(base_url: str, keys: Keys, path: str, body: str | None = None) -> str:
    """A command line that a person can paste; the secret is read from its file when there is one."""
    secret = f"$(cat '{keys.secret_path}')" if keys.secret_path else keys.secret_key.reveal()
    sent = f" -H 'content-type: application/json' -d '{body}'" if body is not None else ""
    return f"curl -H 'x-api-key: {keys.api_key}' -H \"x-secret-key: {secret}\"{sent} {shlex.quote(base_url + path)}"

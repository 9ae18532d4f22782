"""The local service as a target: what ``fleet-simulator up --data DIR`` leaves for other programs, and one for one run.

The file in the data folder names addresses and where the keys are, never a secret itself. It is there as long as the
service runs.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError
from simulator.children import ChildProcess, Children, program_path
from simulator.whole_files import write_whole

_FILE: Final = "standing.json"
_READY_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class LocalService:
    """A service on this machine with all around it.

    Attributes:
        base_url: of the service.
        key_folder: has the files ``api_key`` and ``secret_key``.
        gateway_url: where the gateway serves devices over HTTP; None without one.
        gateway_folder: of the gateway's own files; None without one.
        broker_port: on this machine; None without one.
        broker: its name; the embedded one carries a few hundred devices.
    """

    base_url: str
    key_folder: Path
    gateway_url: str | None = None
    gateway_folder: Path | None = None
    broker_port: int | None = None
    broker: str | None = None


def write_local(folder: Path, standing: LocalService) -> None:
    """Write the file that names a local service and its keys."""
    values = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(standing).items()}
    write_whole(folder / _FILE, json.dumps(values, indent=2) + "\n")


def remove_local(folder: Path) -> None:
    """Take the file away: nothing stands there any more."""
    (folder / _FILE).unlink(missing_ok=True)


def is_local(folder: Path) -> bool:
    """Whether a service stands in this folder, with all around it."""
    return (folder / _FILE).is_file()


def read_local(folder: Path) -> LocalService:
    """What stands in this folder.

    Raises:
        ConfigurationError: nothing does; the text says how to start it.
    """
    path = folder / _FILE
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        gateway = values["gateway_folder"]
        return LocalService(
            base_url=values["base_url"],
            key_folder=Path(values["key_folder"]),
            gateway_url=values["gateway_url"],
            gateway_folder=Path(gateway) if gateway else None,
            broker_port=values["broker_port"],
            broker=values["broker"],
        )
    except FileNotFoundError:
        fix = f"nothing stands there: start it with 'fleet-simulator up --data {folder} --rate-limit 0'"
        raise ConfigurationError([fix], str(folder)) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError([f"cannot be read: {error!r}; start 'fleet-simulator up' again"], str(path)) from None


@contextlib.contextmanager
def running_local(folder: Path, *, rate_limit: int, gateway: bool) -> Iterator[LocalService]:
    """Start ``fleet-simulator up`` and end it after the block.

    Args:
        folder: for its data and its log; made when it is missing.
        rate_limit: requests of a key in a calendar minute; 0 = no limit.
        gateway: with gateway and broker.

    Raises:
        NotStarted: it did not start; the text shows the end of its log.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with Children() as children:
        # What it greets with are keys and a token, which no file is to hold that goes along with a run's reports.
        child = children.add(ChildProcess("fleet-simulator up", folder / "up.log", Path(os.devnull)))
        program = [str(program_path("fleet-simulator")), "up", "--data", str(folder), "--port", "0", "--no-console"]
        program += ["--rate-limit", str(rate_limit)]
        child.start([*program, *(["--gateway-port", "0"] if gateway else ["--no-gateway"])])
        child.wait_until(lambda: _stands(folder), "the service stood", _READY_S)
        yield read_local(folder)


def _stands(folder: Path) -> bool:
    with contextlib.suppress(ConfigurationError):
        read_local(folder)
        return True
    return False

"""What ``fleet-simulator up --data DIR`` leaves for other programs: how to reach all that stands there.

The file names addresses and where the keys are, never a secret itself. It is there as long as the service stands.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from agent.errors import ConfigurationError
from simulator.whole_files import write_whole

_FILE: Final = "standing.json"


@dataclass(frozen=True, slots=True)
class StandingService:
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


def tell_standing(folder: Path, standing: StandingService) -> None:
    """Write the file."""
    values = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(standing).items()}
    write_whole(folder / _FILE, json.dumps(values, indent=2) + "\n")


def forget_standing(folder: Path) -> None:
    """Take the file away: nothing stands there any more."""
    (folder / _FILE).unlink(missing_ok=True)


def find_standing(folder: Path) -> StandingService:
    """What stands in this folder.

    Raises:
        ConfigurationError: nothing does; the text says how to start it.
    """
    path = folder / _FILE
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        gateway = values["gateway_folder"]
        return StandingService(
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

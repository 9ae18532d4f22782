"""The program ``device-gateway`` on this machine, run for one answer."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from agent.errors import UnexpectedAnswer
from agent.wire.secret import Secret
from simulator.children import program_path

_PATIENCE_S: Final = 60.0
_DEVICES_PER_S: Final = 200.0


def run_gateway(*words: str, given: str = "", timeout_s: float = _PATIENCE_S) -> str:
    """What the program prints.

    Args:
        words: the command and its options.
        given: its standard input.
        timeout_s: how long it may take.

    Raises:
        UnexpectedAnswer: it failed, or did not end in time.
    """
    program = [str(program_path("device-gateway")), *words]
    try:
        done = subprocess.run(program, input=given, capture_output=True, text=True, timeout=timeout_s, check=False)
    except (subprocess.TimeoutExpired, OSError) as error:
        raise UnexpectedAnswer(f"'device-gateway {' '.join(words[:2])}' failed: {error!r}") from None
    if done.returncode:
        raise UnexpectedAnswer(f"'device-gateway {' '.join(words[:2])}' failed: {done.stderr.strip()}")
    return done.stdout


def issue_tokens(config: Path, device_ids: Iterable[str], *options: str) -> dict[str, Secret]:
    """A fresh token for each device of a gateway on this machine; an earlier one ends when the fresh one is used.

    A gateway drops what devices without a token send. It follows its file of tokens within a second.

    Args:
        config: of the gateway.
        device_ids: the service's ids.
        options: further ones of ``device-gateway devices add``.

    Raises:
        UnexpectedAnswer: the program failed.
    """
    listed = list(device_ids)
    if not listed:
        return {}
    words = ("devices", "add", "--from", "-", "--no-check", "--again", "--json", "--config", str(config))
    lines = "".join(f"{each}\n" for each in listed)
    printed = run_gateway(*words, *options, given=lines, timeout_s=_PATIENCE_S + len(listed) / _DEVICES_PER_S)
    answer: Any = json.loads(printed)
    return {each["device_id"]: Secret(each["token"]) for each in answer["issued"]}

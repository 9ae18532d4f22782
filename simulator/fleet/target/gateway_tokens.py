"""A gateway on this machine, by its own program: tokens for very many devices at once.

A gateway drops what devices without a token send. It follows its file of tokens within a second.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from agent.errors import ConfigurationError, UnexpectedAnswer
from agent.wire.secret import Secret
from simulator.children import program_path

CONFIG_NAME: Final = "gateway.yaml"
_PATIENCE_S: Final = 60.0
_S_EACH: Final = 0.005
# A command line holds 2 MB; an id is seldom longer than 64 bytes.
_ROTATED_AT_ONCE: Final = 5000


def issue_gateway_tokens(gateway_folder: Path, device_ids: Sequence[str], gateway_url: str) -> dict[str, Secret]:
    """A fresh token for each device; one that it had before is good no more.

    Args:
        gateway_folder: of the gateway's own files, with its configuration.
        device_ids: the service's ids.
        gateway_url: where the gateway serves devices over HTTP.

    Raises:
        ConfigurationError: there is no such gateway.
        UnexpectedAnswer: its program failed, or gave some device no token.
    """
    config = gateway_folder / CONFIG_NAME
    if not config.is_file():
        fix = "name the folder of a running 'fleet-simulator up' (without --no-gateway)"
        raise ConfigurationError([f"{config} is not there: {fix}"], "gateway")
    if not device_ids:
        return {}
    options = ["--config", str(config), "--json", "--plain", "--url", gateway_url]
    timeout_s = _PATIENCE_S + _S_EACH * len(device_ids)
    with tempfile.TemporaryDirectory(prefix="fleet-") as name:
        listed = Path(name) / "devices"
        listed.write_text("".join(f"{each}\n" for each in device_ids), "utf-8")
        answer = _ask(["devices", "add", "--from", str(listed), "--no-check", *options], timeout_s)
    issued = _tokens(answer)
    kept = [str(each) for each in answer.get("kept") or []]  # from an earlier run: nobody can read those again
    for some in _chunks(kept):
        issued |= _tokens(_ask(["devices", "rotate", "--overlap-s", "0", *options, "--", *some], timeout_s))
    missing = [each for each in device_ids if each not in issued]
    if missing:
        raise UnexpectedAnswer(f"the gateway gave {len(missing)} devices no token, such as {missing[0]}")
    return issued


def _tokens(answer: dict[str, Any]) -> dict[str, Secret]:
    return {str(each["device_id"]): Secret(str(each["token"])) for each in answer.get("issued") or []}


def _chunks(ids: Sequence[str]) -> Iterator[list[str]]:
    left = iter(ids)
    while some := list(islice(left, _ROTATED_AT_ONCE)):
        yield some


def _ask(words: list[str], timeout_s: float) -> dict[str, Any]:
    program = [str(program_path("device-gateway")), *words]
    try:
        done = subprocess.run(program, capture_output=True, text=True, timeout=timeout_s, check=False)
        if done.returncode in {0, 1}:  # 1: some devices have one already
            return dict(json.loads(done.stdout))
        reason = done.stderr.strip()
    except (subprocess.TimeoutExpired, OSError, ValueError, TypeError) as error:
        reason = repr(error)
    raise UnexpectedAnswer(f"'device-gateway {words[0]}' failed: {reason}")

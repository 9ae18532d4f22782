"""``fleet-simulator service exec``: a service for as long as one command runs, with its address in the environment."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from agent.errors import ConfigurationError
from agent.wire.secret import Secret
from simulator.die_with_parent import with_parent
from simulator.keys import write_secret
from simulator.service.config import ServiceConfig
from simulator.service.server import RunningService
from simulator.service.temporary import TemporaryFolder

OWN_PREFIX: Final = "DEVICE_SERVICE"
"""Of the variables that any program may read; docs/testing.md lists them."""
_WITH_KEYS: Final = (
    "AUDIT",
    "CLEANUP",
    "COMMAND_SEND",
    "ONBOARD_CAMPAIGN",
    "ONBOARD_CASES",
    "ONBOARD_CLEANUP",
    "ONBOARD_LABELS",
    "PROBE",
    "RUN",
)
_OF_CONTROL_PATHS: Final = ("ACCOUNTS_ADD", "ACCOUNTS_LIST", "FAULTS_ADD", "FAULTS_CLEAR", "FAULTS_LIST")
"""The commands of fleet-simulator that take ``--base-url``, as their variables write them: with ``--secret-key-file``,
or with ``--control-token``. Here they are names, since importing them all takes longer than starting the service; a
test compares them with the commands."""
_FATAL: Final = 128
"""A shell's exit code for a command that a signal has ended is this and the signal's number."""
_FROM_THE_TERMINAL: Final = frozenset({signal.SIGINT, getattr(signal, "SIGQUIT", None)})
_PASSED_ON: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_LOOK_S: Final = 0.5


def execute(config: ServiceConfig, command: Sequence[str]) -> int:
    """Start a service, run the command with its address and keys in the environment, and end the service.

    Args:
        config: of the service.
        command: the program and its arguments; no shell looks at them.

    Returns:
        The command's exit code; 128 and the signal's number when a signal has ended it.

    Raises:
        ConfigurationError: there is no such program, or the service cannot be started.
        PartEnded: an error has ended the service; the command was ended then.
    """
    program = shutil.which(command[0])
    if program is None:
        raise ConfigurationError([f"there is no program {command[0]!r} on the PATH: check its name"], "service exec")
    runner = Runner()
    with runner.passing_signals_on(), TemporaryFolder() as folder, RunningService(config) as service:
        found = environment(service.base_url, service.api_key, service.secret_key, service.control_token, folder.path)
        return runner.run([program, *command[1:]], found, service.look)


def environment(
    base_url: str, api_key: str, secret_key: Secret, control_token: Secret | None, folder: Path
) -> dict[str, str]:
    """The variables that say where a service is and how to get in.

    Args:
        base_url: the service's address.
        api_key: of the account.
        secret_key: of the account.
        control_token: what opens the control paths, where one is needed.
        folder: where the files ``api_key`` and ``secret_key`` of mode 600 are written.
    """
    keys = {"API_KEY": api_key, "SECRET_KEY": secret_key.reveal()}
    files = {f"{name}_FILE": str(write_secret(folder / name.lower(), value)) for name, value in keys.items()}
    found = {f"{OWN_PREFIX}_{name}": value for name, value in {"URL": base_url, **keys, **files}.items()}
    for program in ("DEVICE_AGENT", "DEVICE_GATEWAY"):
        found[f"{program}_SERVICE__BASE_URL"] = base_url
        found |= {f"{program}_AUTH__{name}": value for name, value in files.items()}
    # The agent refuses a key pair on a device. This one is good for as long as the command runs, on this machine.
    found["DEVICE_AGENT_AUTH__ALLOW_SECRET_KEY_ON_DEVICE"] = "true"  # noqa: S105 - no secret
    for words in (*_WITH_KEYS, *_OF_CONTROL_PATHS, "LOGIN"):
        found[f"FLEET_SIMULATOR_{words}_BASE_URL"] = base_url
    for words in _WITH_KEYS:
        found[f"FLEET_SIMULATOR_{words}_API_KEY"] = api_key
        found[f"FLEET_SIMULATOR_{words}_SECRET_KEY_FILE"] = files["SECRET_KEY_FILE"]
    if control_token is not None:
        for words in (OWN_PREFIX, *(f"FLEET_SIMULATOR_{words}" for words in _OF_CONTROL_PATHS)):
            found[f"{words}_CONTROL_TOKEN"] = control_token.reveal()
    return found


class Runner:
    """Runs one command in the terminal's foreground, as if its caller had started it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    @contextlib.contextmanager
    def passing_signals_on(self) -> Iterator[None]:
        """Within the block signals are for the command; those that this process ignores stay ignored."""
        numbers = [getattr(signal, name) for name in _PASSED_ON if hasattr(signal, name)]
        before = {number: signal.getsignal(number) for number in numbers}
        heard = [number for number in numbers if before[number] is not signal.SIG_IGN]
        for number in heard:
            signal.signal(number, self._pass_on)
        try:
            yield
        finally:
            for number in heard:
                signal.signal(number, before[number])

    def run(self, program: Sequence[str], exported: Mapping[str, str], look: Callable[[], None]) -> int:
        """Run it to its end; its exit code.

        Args:
            program: path and arguments.
            exported: environment variables, beside this process's own.
            look: raises when the service has ended, which ends the command.

        Raises:
            ConfigurationError: it could not be started.
        """
        if self._early:
            return _FATAL + self._early[0]
        try:
            self._process = process = subprocess.Popen(with_parent(program), env={**os.environ, **exported})
        except OSError as error:
            raise ConfigurationError([f"{program[0]} cannot be started: {error.strerror}"], "service exec") from None
        for number in self._early:  # it came while the program was started
            process.send_signal(number)
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(_LOOK_S)
                return _FATAL - code if code < 0 else code
            try:
                look()
            except BaseException:
                process.terminate()
                process.wait()
                raise

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        if self._process is None:
            self._early.append(number)
        elif number not in _FROM_THE_TERMINAL or not _is_in_the_foreground():
            self._process.send_signal(number)


def _is_in_the_foreground() -> bool:
    """Whether the terminal sends its signals to this process and to the command alike."""
    try:
        return os.tcgetpgrp(sys.__stdin__.fileno()) == os.getpgrp() if sys.__stdin__ else False
    except (OSError, ValueError, AttributeError):  # no terminal, or Windows
        return False

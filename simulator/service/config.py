"""The settings that the service starts with; each is declared once, for its users in Python and on the command line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    SkipValidation,
    ValidationError,
    model_validator,
)

from agent.errors import ConfigurationError
from agent.wire.models import list_faults
from agent.wire.secret import Secret
from simulator.options import Option
from simulator.service.clock import ServiceClock, SystemClock
from simulator.wire.limits import QUOTA_PER_MINUTE

KEEP_DEFAULT: Final = 1_000
KEEP_MAX: Final = 100_000
_TOKEN: Final = re.compile(r"[!-~]{16,256}", re.ASCII)
_KEY: Final = re.compile(r"[!-~]{1,256}", re.ASCII)

Host = Annotated[str, Option("--host", "Address to listen on; 0.0.0.0 lets other machines in.")]
Port = Annotated[int, Field(ge=0, le=65535), Option("--port", "0 takes any free one.")]
DataDir = Annotated[
    Path | None,
    Option("--data", "Folder that keeps everything; without it all is in a temporary one and gone at the end."),
]
RateLimit = Annotated[
    int, Field(ge=0), Option("--rate-limit", "Requests of one key in a calendar minute; 0 = no limit.")
]
Variant = Annotated[
    Any,
    BeforeValidator(lambda value: _read_variant(value) if isinstance(value, tuple) else value),
    Option(
        "--variant",
        "Answer the first account as another server would: complete, plain, a .yaml file, or choice=value,...; a later "
        "one changes what the earlier ones said. Without it, what is stored.",
        metavar="NAME|FILE|CHOICE=VALUE,...",
        multiple=True,
    ),
]
WithConsole = Annotated[bool, Option("--no-console", "Do not serve the console, the pages below /console/.")]
RunsDir = Annotated[
    Path | None,
    Option(
        "--runs",
        "Folder of the fleet runs that the console shows, and that it puts new ones into.  [default: fleet-runs]",
    ),
]
ScenariosDir = Annotated[
    Path | None,
    Option("--scenarios", "Folder of the scenarios (*.yaml) that may be started from the console; without it none is."),
]
_Secret = Annotated[Secret | None, BeforeValidator(lambda value: Secret(value) if isinstance(value, str) else value)]


def _read_variant(texts: tuple[str, ...]) -> Any:
    from simulator.service.variant import read_variant  # lazily: with it comes the server, which --help does not need

    return read_variant(texts) if texts else None


class Settings(BaseModel):
    """Settings that are checked all at once.

    Raises:
        ConfigurationError: with each of them that cannot be used.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    @model_validator(mode="wrap")
    @classmethod
    def _check(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            made = handler(given)
        except ValidationError as error:
            faults = [f"{field}: {issue}" for field, issue in list_faults(error)]
            raise ConfigurationError(faults, "settings") from None
        if faults := made.faults():
            raise ConfigurationError(faults, "settings")
        return made

    def faults(self) -> list[str]:
        """What cannot be used, beyond what each setting's own type says."""
        return []


class ServiceConfig(Settings):
    """The service's settings.

    Attributes:
        clock: where the time comes from; a test's own.
        seed: makes ids repeatable; None for ids that never repeat.
        variant: a :class:`simulator.service.variant.ServerVariant`, or its texts: how the first account is answered;
            None keeps what is stored, the complete service at first.
    """

    host: Host = "127.0.0.1"
    port: Port = 0
    data_dir: DataDir = None
    seed_file: Annotated[
        Path | None,
        Option(
            "--seed",
            "YAML of products, rules, devices, users, clients that are to be there; the same file twice changes "
            "nothing.",
            is_file=True,
        ),
    ] = None
    api_key: Annotated[str | None, Option("--api-key", "Begins with mk_; made when absent.")] = None
    secret_key: Annotated[
        _Secret,
        Option(
            "--secret-key",
            "Begins with msk_. Other users of this machine see it in the process list: prefer --secret-key-file.",
        ),
    ] = None
    rate_limit: RateLimit = QUOTA_PER_MINUTE
    validate_commands: Annotated[
        bool, Option("--validate-commands", "Check each command_payload against its product's vocabulary.")
    ] = False
    variant: Variant = None
    control: Annotated[bool, Option("--no-control", "Do not serve /_emulator/... (loopback callers only).")] = True
    control_token: Annotated[
        _Secret,
        Option(
            "--control-token",
            "What callers of /_emulator/... must send in X-Emulator-Token; without it none is needed.",
        ),
    ] = None
    console: WithConsole = False
    runs_dir: RunsDir = None
    scenarios_dir: ScenariosDir = None
    keep_requests: Annotated[
        int,
        Field(ge=0, le=KEEP_MAX),
        Option("--keep-requests", "Requests and answers that /_emulator/requests shows, in memory; 0 = none."),
    ] = KEEP_DEFAULT
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Option("--log-level", "The least severe lines to write.")
    ] = "info"
    clock: SkipValidation[ServiceClock] = Field(default_factory=SystemClock)
    seed: int | None = None

    def faults(self) -> list[str]:
        """As :meth:`Settings.faults`."""
        found = fault_of_keys(self.api_key, self.secret_key.reveal() if self.secret_key else None)
        faults = [f"{name} {issue}" for name, issue in found]
        if self.control_token is not None and not _TOKEN.fullmatch(self.control_token.reveal()):
            faults.append("control_token must be 16 to 256 visible ASCII characters: openssl rand -hex 16 makes one")
        if (self.runs_dir or self.scenarios_dir) and not (self.console and self.control):
            faults.append("--runs and --scenarios are the console's, which --no-console or --no-control leaves out")
        return faults


def fault_of_keys(api_key: str | None, secret_key: str | None) -> list[tuple[str, str]]:
    """What is wrong with a key pair that is given, as (field, issue); nothing where neither part is."""
    faults = []
    if (api_key is None) != (not secret_key):
        missing = "api_key" if api_key is None else "secret_key"
        faults.append((missing, "is missing: the two belong together; give both, or neither to have them made"))
    if api_key is not None and not (api_key.startswith("mk_") and _KEY.fullmatch(api_key)):
        faults.append(("api_key", "must begin with 'mk_' and have only visible ASCII characters"))
    if secret_key and not (secret_key.startswith("msk_") and _KEY.fullmatch(secret_key)):
        faults.append(("secret_key", "must begin with 'msk_' and have only visible ASCII characters"))
    return faults

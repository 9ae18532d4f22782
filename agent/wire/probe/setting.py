"""The keys of ``service.dialect`` for one server, as YAML to paste. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from agent.frozen import dataclass

_NOTHING: Final = "# nothing to set: the agent finds out by itself what this server does"


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of ``service.dialect``.

    Attributes:
        key: its name.
        value: a text, or a list of texts.
        why: one line without a line end.
        only_if_wanted: the agent works without it, so it is written as a comment.
    """

    key: str
    value: object
    why: str
    only_if_wanted: bool = False


def dialect_text(settings: Sequence[Setting]) -> str:
    """YAML for the agent's configuration; keys that are only wanted stand there as comments."""
    needed = [setting for setting in settings if not setting.only_if_wanted]
    wanted = [setting for setting in settings if setting.only_if_wanted]
    if not settings:
        return f"{_NOTHING}\n"
    lines = ["service:", "  dialect:", *(line for setting in needed for line in _lines(setting))]
    if needed:
        for setting in wanted:
            why, line = _lines(setting)
            lines += [why, f"    # {line.strip()}"]
    else:
        lines += [line for setting in wanted for line in _lines(setting)]
        lines = [_NOTHING, "# if you want:", *(f"# {line}" for line in lines)]
    return "\n".join(lines) + "\n"


def _lines(setting: Setting) -> tuple[str, str]:
    return f"    # {setting.why}", f"    {setting.key}: {json.dumps(setting.value)}"

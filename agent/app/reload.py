"""Taking over a changed configuration on SIGHUP: at once where nothing has to stop for it, else by a new process image.

Whatever is wrong with the file changes nothing. A restart waits for the commands that run, so that none of them is cut
off; it replaces the process in place (execve(2)), so the service manager sees one service that reloads.
"""

from __future__ import annotations

from typing import Final

from agent.config import AgentConfig
from agent.config.changes import Key, changed_keys, is_covered

LIVE: Final = (
    "logging.level",
    "logging.format",
    "commands.poll.fast_s",
    "commands.poll.slow_s",
    "commands.poll.idle_s",
    "sensors.*.interval_s",
    "sensors.*.report",
    "safe_mode",
)
"""What counts from the next moment on; every other key belongs to something that is built with it."""


def needs_restart(old: AgentConfig, new: AgentConfig) -> tuple[list[Key], list[Key]]:
    """The keys that changed, and those among them that only a restart brings into force."""
    changed = changed_keys(old, new)
    # Their order decides which sensor may call its readings by their short names.
    if [sensor.name for sensor in old.sensors] != [sensor.name for sensor in new.sensors]:
        changed = sorted({*changed, ("sensors",)})
    return changed, [key for key in changed if not is_covered(key, LIVE)]

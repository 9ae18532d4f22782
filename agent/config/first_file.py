"""The configuration that a new device or gateway begins with, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml


def first_file(program: str, values: Mapping[str, Any]) -> str:
    """A configuration file with these values; every other key has its default.

    Args:
        program: ``device-agent`` or ``device-gateway``.
        values: nested like the file; texts, numbers, lists and mappings alone.
    """
    head = (
        f"# Configuration of {program}. What is not here has its default; every key with its meaning is in configs/\n"
        f"# of the repository, and in /usr/share/doc/{program}/examples/ of the package. Secrets are never here, but\n"
        f"# in files of mode 600. Check it with: {program} check --config THIS_FILE\n\n"
    )
    return head + yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)

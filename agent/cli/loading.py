"""How a command comes to its configuration, and what a wrong one does to it. Without click: see :mod:`agent.cli`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from agent.bounded_text import bounded
from agent.config.load import DEFAULT_PATH, FindLayer, LoadedConfig, find_layer, load_config
from agent.errors import ConfigurationError

EXIT_CONFIGURATION: Final = 2


def load(config_path: Path, find_layer: FindLayer = find_layer) -> LoadedConfig:
    """The configuration that a command works with.

    Raises:
        ConfigurationError: every fault of it.
    """
    is_default = config_path == DEFAULT_PATH and not config_path.exists()
    from_environment = is_default and "DEVICE_AGENT_SERVICE__BASE_URL" in os.environ
    return load_config(None if from_environment else config_path, os.environ, find_layer)


@contextmanager
def configuration_faults_end_it() -> Iterator[None]:
    """A wrong configuration ends the program with code 2, each fault on a line of its own."""
    try:
        yield
    except ConfigurationError as error:
        sys.stderr.write(bounded(f"{error}\n"))
        raise SystemExit(EXIT_CONFIGURATION) from None

"""Settings of a fault as a scenario would have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from agent.errors import ConfigurationError
from agent.wire.base import describe_faults
from simulator.fleet.faults.registry import DeviceFaultSettings

_READER: Final[TypeAdapter[Any]] = TypeAdapter(DeviceFaultSettings)


def read_fault(document: Mapping[str, Any]) -> Any:
    """The settings of one fault.

    Raises:
        ConfigurationError: the kind is unknown, or a key is.
    """
    try:
        return _READER.validate_python(dict(document))
    except ValidationError as error:
        raise ConfigurationError([describe_faults(error)], "faults") from None

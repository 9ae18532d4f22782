"""Settings of a fault as a scenario would have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from agent.errors import ConfigurationError
from agent.wire.models import describe_faults
from simulator.fleet.faults import AnyFault

_READER: Final[TypeAdapter[Any]] = TypeAdapter(AnyFault)


def read_fault(document: Mapping[str, Any]) -> Any:
    """One fault, as it is played when it is the only one.

    Raises:
        ConfigurationError: the kind is unknown, or a key is.
    """
    try:
        return _READER.validate_python(dict(document)).placed(0, document["at_s"])
    except ValidationError as error:
        raise ConfigurationError([describe_faults(error)], "faults") from None

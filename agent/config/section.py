"""The base of every section of the configuration, and the types of its keys."""

from __future__ import annotations

import ipaddress
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from agent.wire.address import read_host

Seconds = Annotated[float, Field(gt=0, le=31 * 86400)]
Host = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(read_host)]
Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
Identifier = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")]


class Section(BaseModel):
    """The base of all sections: frozen, and an unknown key is a fault."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


def is_this_machine(host: str) -> bool:
    """True for names and addresses that never leave this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

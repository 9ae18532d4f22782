"""What a scope lets a partner do, in the words of the person who is asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from simulator.service.core import scopes


@dataclass(frozen=True, slots=True)
class ScopeText:
    """A scope for people.

    Attributes:
        name: as on the wire.
        title: two or three words.
        sentence: what can be read and what can be changed with it.
    """

    name: str
    title: str
    sentence: str


_TEXTS: Final = {
    text.name: text
    for text in (
        ScopeText(
            scopes.PRODUCTS,
            "Products",
            "See your products and the commands that they know; create, change and delete products.",
        ),
        ScopeText(
            scopes.DEVICES,
            "List of devices",
            "See which devices you have, who uses them and when they were last seen. It changes nothing.",
        ),
        ScopeText(
            scopes.COMMANDS,
            "Commands to devices",
            "Send commands to your devices, which then act on them; see all commands and report how they ended.",
        ),
        ScopeText(
            scopes.DATA,
            "Sensor data",
            "Read what your devices have measured, and store further readings in their name.",
        ),
        ScopeText(
            scopes.DATABASE,
            "Product databases",
            "Create schemas and tables for your products; read, add, change and delete the records in them.",
        ),
        ScopeText(
            scopes.ONBOARDING,
            "Adding and removing devices",
            "Read device labels, link devices to users, see a user's devices, and remove devices.",
        ),
        ScopeText(
            scopes.DASHBOARDS,
            "Dashboards",
            "See and replace the dashboards of your products.",
        ),
        ScopeText(
            scopes.RULES,
            "Rules",
            "See, create, change and delete rules. A rule sends commands to your devices by itself.",
        ),
        ScopeText(
            scopes.ANALYTICS,
            "Figures",
            "See how many devices you have, and how many readings and commands they exchange. It changes nothing.",
        ),
    )
}


def describe(names: Iterable[str]) -> list[ScopeText]:
    """Describe scopes for people, in the order of the specification's groups."""
    asked = set(names)
    return [text for name, text in _TEXTS.items() if name in asked]

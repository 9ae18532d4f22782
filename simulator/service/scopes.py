"""What a bearer token may do: one scope for each group of endpoints (specification, "Step 1: authorize")."""

from __future__ import annotations

from typing import Final

PRODUCTS: Final = "manufacturer:products"
DEVICES: Final = "manufacturer:devices"
COMMANDS: Final = "manufacturer:commands"
DATA: Final = "manufacturer:data"
DATABASE: Final = "manufacturer:database"
ONBOARDING: Final = "manufacturer:onboarding"
DASHBOARDS: Final = "manufacturer:dashboards"
RULES: Final = "manufacturer:rules"
ANALYTICS: Final = "manufacturer:analytics"

SCOPES: Final = (PRODUCTS, DEVICES, COMMANDS, DATA, DATABASE, ONBOARDING, DASHBOARDS, RULES, ANALYTICS)
ALL: Final = " ".join(SCOPES)
"""What signing in with a password grants: the person acts as the account does."""

TEXTS: Final = {
    PRODUCTS: (
        "Products",
        "See your products and the commands that they know; create, change and delete products.",
    ),
    DEVICES: (
        "List of devices",
        "See which devices you have, who uses them and when they were last seen. It changes nothing.",
    ),
    COMMANDS: (
        "Commands to devices",
        "Send commands to your devices, which then act on them; see all commands and report how they ended.",
    ),
    DATA: (
        "Sensor data",
        "Read what your devices have measured, and store further readings in their name.",
    ),
    DATABASE: (
        "Product databases",
        "Create schemas and tables for your products; read, add, change and delete the records in them.",
    ),
    ONBOARDING: (
        "Adding and removing devices",
        "Read device labels, link devices to users, see a user's devices, and remove devices.",
    ),
    DASHBOARDS: (
        "Dashboards",
        "See and replace the dashboards of your products.",
    ),
    RULES: (
        "Rules",
        "See, create, change and delete rules. A rule sends commands to your devices by itself.",
    ),
    ANALYTICS: (
        "Figures",
        "See how many devices you have, and how many readings and commands they exchange. It changes nothing.",
    ),
}
"""Title and sentence of each scope, for the person who is asked for it."""

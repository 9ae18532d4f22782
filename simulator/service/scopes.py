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

TEXTS: Final = {
    PRODUCTS: "See your products and the commands that they know; create, change and delete products.",
    DEVICES: "See which devices you have, who uses them and when they were last seen. It changes nothing.",
    COMMANDS: "Send commands to your devices, which then act on them; see all commands and report how they ended.",
    DATA: "Read what your devices have measured, and store further readings in their name.",
    DATABASE: "Create schemas and tables for your products; read, add, change and delete the records in them.",
    ONBOARDING: "Read device labels, link devices to users, see a user's devices, and remove devices.",
    DASHBOARDS: "See and replace the dashboards of your products.",
    RULES: "See, create, change and delete rules. A rule sends commands to your devices by itself.",
    ANALYTICS: "See how many devices you have, and how many readings and commands they exchange. It changes nothing.",
}
"""What each scope opens, for the person who is asked for it."""
SCOPES: Final = tuple(TEXTS)
ALL: Final = " ".join(SCOPES)
"""What signing in with a password grants: the person acts as the account does."""

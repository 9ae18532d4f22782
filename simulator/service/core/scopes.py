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

"""Which account has which profile: in memory for every request, in the storage for the next start."""

from __future__ import annotations

from pydantic import ValidationError
from sqlalchemy import Connection

from agent.errors import ConfigurationError
from simulator.service.profiles.model import COMPLETE, ServerProfile
from simulator.service.storage import keys


class AccountProfiles:
    """The profiles of all accounts. An account with the complete service's choices has no entry.

    Attributes:
        active: account row -> profile, of the accounts that are answered otherwise; requests look here first.
    """

    def __init__(self) -> None:
        self.active: dict[int, ServerProfile] = {}

    def of(self, account: int) -> ServerProfile:
        """The profile of an account."""
        return self.active.get(account, COMPLETE)

    def show(self, account: int, profile: ServerProfile) -> None:
        """Answer the account like this from now on. Called on the event loop, or before the service runs."""
        active = {**self.active, account: profile}
        if profile == COMPLETE:
            del active[account]
        self.active = active

    def store(self, connection: Connection, account: int, profile: ServerProfile) -> None:
        """Keep it for the next start."""
        keys.save_profile(connection, account, None if profile == COMPLETE else profile.model_dump_json())


def read_profiles(connection: Connection) -> dict[int, ServerProfile]:
    """Account row -> profile, of the accounts that have one.

    Raises:
        ConfigurationError: a stored profile has an axis or a value that this release does not know.
    """
    found = {}
    for account, text in keys.load_profiles(connection).items():
        try:
            found[account] = ServerProfile.model_validate_json(text)
        except ValidationError as exc:
            axes = ", ".join(dict.fromkeys(str(fault["loc"][0]) for fault in exc.errors(include_url=False)))
            issue = f"an account's stored profile is of another release ({axes}): use that one, or another database"
            raise ConfigurationError([issue], "service") from None
    return found

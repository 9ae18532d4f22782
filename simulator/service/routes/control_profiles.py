"""``/_emulator/accounts/{account}/profile``: how the service answers an account."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from simulator.service.addresses import CONTROL_PREFIX
from simulator.service.answers import Answer, ok
from simulator.service.call import Call
from simulator.service.endpoints import ERROR, Endpoint, Reply
from simulator.service.errors import invalid, invalid_all
from simulator.service.profiles.model import COMPLETE, ServerProfile
from simulator.service.profiles.text import ProfileFaultsError, change
from simulator.service.storage import accounts

_TAG: Final = "control"
_PATH: Final = f"{CONTROL_PREFIX}accounts/{{account_id}}/profile"


class ProfileWanted(ServerProfile):
    """``PUT``: the axes that differ from ``base``. ``PATCH``: the axes to change; ``base`` resets all first."""

    base: Annotated[
        Literal["complete", "plain"], Field(description="The named profile that the other members are changes of.")
    ] = "complete"


async def show_profile(call: Call) -> Answer:
    """The account's profile, every axis of it."""
    return ok(call.service.profiles.of(await _account(call)).model_dump())


async def put_profile(call: Call) -> Answer:
    """Answer the account by this profile from now on: axes that are left out are those of ``base``, or complete."""
    account = await _account(call)
    return await _set(call, account, COMPLETE)


async def change_profile(call: Call) -> Answer:
    """Change some axes of the account's profile."""
    account = await _account(call)
    return await _set(call, account, call.service.profiles.of(account))


async def _set(call: Call, account: int, before: ServerProfile) -> Answer:
    axes = await call.json()
    if not isinstance(axes, Mapping):
        raise invalid("body", "must be an object of axes")
    try:
        profile = change(before, axes)
    except ProfileFaultsError as exc:
        raise invalid_all(exc.faults) from None
    profiles = call.service.profiles
    await call.service.writer.submit(lambda connection: profiles.store(connection, account, profile))
    profiles.show(account, profile)
    return ok(profile.model_dump())


async def _account(call: Call) -> int:
    account_id = call.path("account_id")
    row = await call.service.look_up(lambda connection: accounts.find(connection, account_id))
    return int(row.seq)


_NO_ACCOUNT: Final = Reply(404, "`account_not_found`", ERROR)
_INVALID: Final = Reply(400, "An axis or a value that does not exist", ERROR)
_SHOWN: Final = Reply(200, "The profile, every axis of it", ServerProfile)

ENDPOINTS: Final = (
    Endpoint(
        "GET",
        _PATH,
        show_profile,
        "show_profile",
        "How the service answers an account; account_id is its id, a public key or its name",
        _TAG,
        (_SHOWN, _NO_ACCOUNT),
        public=True,
    ),
    Endpoint(
        "PUT",
        _PATH,
        put_profile,
        "put_profile",
        "Answer an account by another profile",
        _TAG,
        (_SHOWN, _INVALID, _NO_ACCOUNT),
        body=(ProfileWanted,),
        public=True,
    ),
    Endpoint(
        "PATCH",
        _PATH,
        change_profile,
        "change_profile",
        "Change some axes of an account's profile; those that are left out stay as they are",
        _TAG,
        (_SHOWN, _INVALID, _NO_ACCOUNT),
        body=(ProfileWanted,),
        public=True,
    ),
)

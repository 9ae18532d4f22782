"""Accounts while the service runs. Their keys are kept in memory beside the storage, and changed after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from sqlalchemy import Connection

from agent.errors import ConfigurationError
from agent.wire.secret import Secret
from simulator.service.clock import SettableClock
from simulator.service.errors import invalid_all
from simulator.service.ids import IdSource
from simulator.service.passwords import hash_password
from simulator.service.profiles.accounts import AccountProfiles, read_profiles
from simulator.service.profiles.model import COMPLETE, ServerProfile
from simulator.service.quota import Quota
from simulator.service.storage import accounts, clients, keys, people
from simulator.service.storage.accounts import NewAccount
from simulator.service.storage.clients import NewClient, WantedClient
from simulator.service.storage.keys import Caller, Keys
from simulator.service.storage.people import Person
from simulator.service.storage.writer import Writer

T = TypeVar("T")
Made = TypeVar("Made")

NAME_CHARACTERS: Final = 200
QUOTA_MAX: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class WantedUser:
    """A person who may sign in; the id is made when None."""

    email: str
    password: Secret
    user_id: str | None = None


@dataclass(frozen=True, slots=True)
class WantedAccount:
    """An account that is to be made.

    Attributes:
        name: unique on the service; made when None.
        quota: requests of each of its keys in a minute, 0 = no limit; None for the service's.
        keys: its key pairs; one is made when there is none.
    """

    name: str | None = None
    profile: ServerProfile = COMPLETE
    quota: int | None = None
    keys: tuple[Keys, ...] = ()
    users: tuple[WantedUser, ...] = ()
    clients: tuple[WantedClient, ...] = ()


@dataclass(frozen=True, slots=True)
class MadeAccount:
    """An account that was made just now, with the secrets that are shown this once."""

    stored: NewAccount
    profile: ServerProfile
    clients: tuple[NewClient, ...]
    created_ms: int


@dataclass(frozen=True, slots=True)
class AccountCache:
    """What the service keeps in memory of all accounts: keys, profiles, quotas."""

    callers: Mapping[bytes, Caller]
    profiles: Mapping[int, ServerProfile]
    quotas: Mapping[int, int]


class Accounts:
    """All accounts of the service, by their keys.

    The methods ending in ``_now`` write, and wait for it: from any thread but the event loop's. Handlers have the
    writer carry ``store`` out instead, and then call ``show``.

    Attributes:
        callers: key -> whose it is; changed in place, since the gate looks here.
        profiles: how each account is answered.
        quota: of the keys of all accounts.
        own: the key pair that this start was given, or made.

    Secrets of pairs that came since the start are kept in memory, to be shown when they are asked for; hashes alone are
    stored.
    """

    def __init__(self, writer: Writer, ids: IdSource, clock: SettableClock, quota: Quota, own: Keys | None) -> None:
        self._writer = writer
        self._ids = ids
        self._clock = clock
        self.callers: dict[bytes, Caller] = {}
        self.profiles = AccountProfiles()
        self.quota = quota
        self.own = own
        # No more than there are keys: a key that ends takes its secret along.

    # --- the first one ----------------------------------------------------------------------------------------

    def keep_own(self, connection: Connection) -> Keys | None:
        """The pair of this start opens the first account, whatever is stored.

        Returns:
            Keys that were made just now and nobody knows yet.

        Raises:
            ConfigurationError: the given key is stored with another secret.
        """
        return keys.ensure_first_account(connection, self.own, self._ids.next(), self._clock.now_ms())

    @property
    def api_key(self) -> str:
        """The public key to use: the one given or made at this start, or the oldest stored of the first account."""
        if self.own is not None and self.own.api_key.encode() in self.callers:
            return self.own.api_key
        return next(iter(self.callers.values())).api_key

    @property
    def secret_key(self) -> Secret:
        """The secret that belongs to :attr:`api_key`.

        Raises:
            ConfigurationError: it was shown on the first start and only its hash was kept.
        """
        if self.own is not None and self.own.api_key == self.api_key:
            return self.own.secret_key
        issue = (
            f"the secret key of {self.api_key} was shown on the first start and is not kept: give it again,"
            " or a new pair, with --api-key and --secret-key"
        )
        raise ConfigurationError([issue], "service")

    # --- what is in memory ------------------------------------------------------------------------------------

    def hold(self, held: AccountCache) -> None:
        """Replace all accounts by these."""
        self.callers.clear()
        self.callers.update(held.callers)
        self.profiles.active = {account: profile for account, profile in held.profiles.items() if profile != COMPLETE}
        self.quota.set_limits(held.quotas)

    def show_callers(self, callers: Sequence[Caller]) -> None:
        """Let requests with these keys in from now on; the first account's come first, its oldest one first of all."""
        first = next(iter(self.callers.values()), None)
        self.callers.update((caller.api_key.encode(), caller) for caller in callers)
        if first is not None and any(caller.manufacturer_seq == first.manufacturer_seq for caller in callers):
            ordered = sorted(self.callers.items(), key=lambda item: item[1].manufacturer_seq)
            self.callers.clear()
            self.callers.update(ordered)

    def forget(self, account: int) -> None:
        """Remove a deleted account's keys."""
        gone = [caller.api_key for caller in self.callers.values() if caller.manufacturer_seq == account]
        for api_key in gone:
            self.end_key(api_key)
        self.profiles.show(account, COMPLETE)
        self.quota.set_limit(account, None)
        self.quota.clear(gone)

    def end_key(self, api_key: str) -> None:
        """A key is good no longer."""
        self.callers.pop(api_key.encode(), None)

    def account_of(self, api_key: str) -> int:
        """The row of the account that has this key.

        Raises:
            ConfigurationError: there is none.
        """
        caller = self.callers.get(api_key.encode())
        if caller is None:
            raise ConfigurationError([f"there is no account with the key {api_key!r}"], "service accounts")
        return caller.manufacturer_seq

    # --- making one -------------------------------------------------------------------------------------------

    def prepare(self, wanted: WantedAccount) -> MadeAccount:
        """Everything about an account but its row. Hashes passwords: with users, not on the event loop.

        Raises:
            Invalid: what cannot be, all at once, by field.
        """
        faults: list[tuple[str, str]] = []
        account_id = self._ids.next()
        name = f"account-{account_id}" if wanted.name is None else wanted.name
        if (fault := check_name(name)) is not None:
            faults.append(("name", fault))
        if wanted.quota is not None and not 0 <= wanted.quota <= QUOTA_MAX:
            faults.append(("quota", f"must be a whole number from 0 to {QUOTA_MAX}"))
        users = _make_each("users", wanted.users, self._make_person, faults)
        partners = _make_each("clients", wanted.clients, clients.make_checked, faults)
        if faults:
            raise invalid_all(faults)
        stored = NewAccount(
            account_id,
            name,
            None if wanted.profile == COMPLETE else wanted.profile.model_dump_json(),
            wanted.quota,
            wanted.keys or (keys.make_keys(),),
            tuple(users),
            tuple(client for client, _ in partners),
        )
        return MadeAccount(stored, wanted.profile, tuple(made for _, made in partners), self._clock.now_ms())

    def _make_person(self, user: WantedUser) -> Person:
        password_hash = hash_password(people.check_password(user.password))
        return people.make(user.email, password_hash, user.user_id or self._ids.next(), None)

    def show(self, made: MadeAccount, seq: int, callers: Sequence[Caller]) -> None:
        """The account is stored, and good from now on."""
        self.profiles.show(seq, made.profile)
        self.quota.set_limit(seq, made.stored.quota)
        self.show_callers(callers)

    def add_now(self, name: str, pair: Keys | None = None) -> Keys:
        """An account with one key pair, made here when None.

        An account of this name that is there gets the pair as a further one; a pair that is there stays where it is.
        """
        pair = pair or keys.make_keys()
        if pair.api_key.encode() in self.callers:
            return pair
        made = self.prepare(WantedAccount(name, keys=(pair,)))

        def add(connection: Connection) -> tuple[int, list[Caller]]:
            known = accounts.find_named(connection, name)
            if known is not None:
                return known.seq, [accounts.add_key(connection, known.seq, pair, made.created_ms)]
            return accounts.add(connection, made.stored, made.created_ms)

        _, callers = self._writer.call(add)
        self.show_callers(callers)
        return pair

    def add_user_now(self, user: WantedUser, account: int | None) -> str:
        """A person who may sign in; the person's id.

        Args:
            user: the address is unique on the whole service.
            account: None for a person who is no manufacturer before the first approval of a partner.

        Raises:
            ConfigurationError: the address or the password cannot be used.
            Conflict: the address or the id is taken.
        """
        person = self._make_person(user)
        person = Person(person.user_id, account, person.email, person.password_hash)
        self._writer.call(lambda connection: people.add(connection, person, self._clock.now_ms()))
        return person.user_id

    def add_client_now(self, wanted: WantedClient, account: int) -> NewClient:
        """Register a partner application.

        Raises:
            ConfigurationError: it cannot be registered like that.
            Conflict: the id is taken.
        """
        client, made = clients.make_checked(wanted)
        self._writer.call(lambda connection: clients.add(connection, account, client, self._clock.now_ms()))
        return made

    def set_profile_now(self, profile: ServerProfile, account: int) -> None:
        """Answer an account otherwise."""
        self._writer.call(lambda connection: self.profiles.store(connection, account, profile))
        self.profiles.show(account, profile)


def read_held(connection: Connection) -> AccountCache:
    """All accounts as they are stored.

    Raises:
        ConfigurationError: a stored profile is of another release.
    """
    return AccountCache(keys.load_callers(connection), read_profiles(connection), accounts.load_quotas(connection))


def check_name(name: str) -> str | None:
    """What is wrong with an account's name; None for nothing."""
    if not 0 < len(name) <= NAME_CHARACTERS or not name.isprintable():
        return f"must have 1 to {NAME_CHARACTERS} printable characters"
    return None


def _make_each(field: str, wanted: Sequence[T], make: Callable[[T], Made], faults: list[tuple[str, str]]) -> list[Made]:
    """What is made of each; those that cannot be are noted as faults."""
    made = []
    for index, one in enumerate(wanted):
        try:
            made.append(make(one))
        except ConfigurationError as exc:
            faults += [(f"{field}.{index}", fault) for fault in exc.faults]
    return made

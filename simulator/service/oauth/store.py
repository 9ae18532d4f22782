"""Partner applications and the people who sign in: what may be registered, and what is stored of it."""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import sqlite3
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, Final, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from agent.wire.models import Items, Sent, SentSecret
from agent.wire.secret import Secret
from simulator.service.caller import hash_secret
from simulator.service.db import insert, one, update
from simulator.service.errors import conflict
from simulator.service.oauth.passwords import CHARACTERS, check_password
from simulator.service.scopes import ALL, SCOPES

AUTHORIZATION_CODE: Final = "authorization_code"
REFRESH_TOKEN: Final = "refresh_token"  # noqa: S105 - a grant type of RFC 6749
GRANT_TYPES: Final = (AUTHORIZATION_CODE, REFRESH_TOKEN)
SIGN_IN_ID: Final = "sign-in"
EMAIL_CHARACTERS: Final = 254
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+")
_URI: Final = re.compile(r"([a-z][a-z0-9+.-]*):[!-~]{1,2000}", re.ASCII)
_SECRET: Final = re.compile(r"[!-~]{32,256}", re.ASCII)


# --- partner applications -------------------------------------------------------------------------------------------


def origin_of(url: str) -> str | None:
    """``scheme://host[:port]`` as a browser writes it; None unless it is https, or http on the machine itself."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or parts.username is not None or parts.password is not None or not url.isascii():
        return None
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        return None
    shown = f"[{host}]" if ":" in host else host
    default = 443 if parts.scheme == "https" else 80
    return f"{parts.scheme}://{shown}" + ("" if port in {None, default} else f":{port}")


def is_loopback(host: str) -> bool:
    """Whether this host is the machine that it is said on."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_redirect_uri(uri: str) -> str:
    """RFC 9700, section 4.1.3; RFC 8252, section 7."""
    found = _URI.fullmatch(uri)
    scheme = found[1] if found is not None else ""
    is_good = origin_of(uri) is not None if scheme in {"http", "https"} else "." in scheme
    if not is_good or "#" in uri or "\\" in uri:
        raise ValueError(
            f"{uri!r:.120} must be an https address without a fragment; http is for this machine only (127.0.0.1,"
            " [::1], localhost); a scheme of one's own is a reversed domain name, such as com.example.app:/callback"
        )
    return uri


def _check_scope(scope: str) -> str:
    if scope not in SCOPES:
        raise ValueError(f"must be one of {', '.join(SCOPES)}")
    return scope


def _check_grant_types(given: tuple[str, ...]) -> tuple[str, ...]:
    if AUTHORIZATION_CODE not in given or set(given) - set(GRANT_TYPES):
        raise ValueError(f"must be {AUTHORIZATION_CODE!r}, with or without {REFRESH_TOKEN!r}")
    return given


def _check_printable(text: str) -> str:
    if not text.isprintable() or not text.strip():
        raise ValueError("must have printable characters only")
    return text


def _check_client_id(client_id: str) -> str:
    if client_id == SIGN_IN_ID:
        raise ValueError(f"{SIGN_IN_ID!r} is the service's own client: choose another")
    return client_id


def _check_client_secret(secret: Secret) -> Secret:
    if not _SECRET.fullmatch(secret.reveal()):
        raise ValueError("client_secret must have 32 to 256 visible ASCII characters; leave it out to have one made")
    return secret


class NewClient(Sent):
    """A partner application that is to be registered.

    Attributes:
        name: what users know it by.
        redirect_uris: where a browser may be sent to; compared to the letter.
        scopes: what it may ask for.
        public: it keeps no secret (a single-page or mobile application) and proves itself by PKCE.
        client_id: made when left out.
        client_secret: made when left out.
        description: one sentence for the consent page.
    """

    name: Annotated[str, StringConstraints(min_length=1, max_length=100), AfterValidator(_check_printable)]
    redirect_uris: Annotated[
        Items[Annotated[str, AfterValidator(_check_redirect_uri)]], Field(min_length=1, max_length=20)
    ]
    scopes: Annotated[Items[Annotated[str, AfterValidator(_check_scope)]], Field(min_length=1)] = SCOPES
    public: bool = False
    client_id: (
        Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._~-]{1,100}$"), AfterValidator(_check_client_id)] | None
    ) = None
    client_secret: Annotated[SentSecret, AfterValidator(_check_client_secret)] | None = None
    grant_types: Annotated[Items[str], AfterValidator(_check_grant_types)] = GRANT_TYPES
    description: Annotated[str, StringConstraints(max_length=500)] | None = None

    @model_validator(mode="after")
    def _check_public(self) -> Self:
        if self.public and self.client_secret is not None:
            raise ValueError("a public client has no client_secret: leave it out, or public")
        return self

    def record(self) -> dict[str, Any]:
        """The answer to who registered it: with its secret, this once."""
        return self.model_dump(exclude={"public", "description"})


@dataclass(frozen=True, slots=True)
class Client:
    """A registered partner application, as its row has it: several values stand in one text, with spaces between.

    Attributes:
        secret_hash: None for a public one.
    """

    client_id: str
    name: str
    redirect_uris: str
    scope: str
    grant_types: str
    secret_hash: bytes | None = None
    description: str | None = None

    @property
    def is_public(self) -> bool:
        """Whether it keeps no secret."""
        return self.secret_hash is None

    def has_secret(self, secret: str) -> bool:
        """Whether this is its secret; compared in constant time."""
        return self.secret_hash is not None and hmac.compare_digest(self.secret_hash, hash_secret(secret))


_COLUMNS: Final = ", ".join(field.name for field in fields(Client))
SIGN_IN: Final = Client(SIGN_IN_ID, "Sign-in with a password", "", ALL, REFRESH_TOKEN)
"""Whose tokens ``POST /auth/signin`` answers: they are refreshed with this ``client_id``. Without a redirect URI it
never takes part in an authorization."""


def add_client(sql: sqlite3.Connection, account: int, wanted: NewClient, now_ms: int) -> NewClient:
    """Register a client in a transaction.

    Returns:
        It, with what was made: its id, and its secret unless it is public.

    Raises:
        ApiError: 409 ``client_exists``: the id is taken, by this account or another one.
    """
    client_id = wanted.client_id or f"client-{secrets.token_hex(8)}"
    if find_client(sql, client_id) is not None:
        text = f"there is a client {client_id!r} already, of this account or another one"
        raise conflict("client_exists", f"client_id: {text}", [("client_id", text)])
    secret = wanted.client_secret or (None if wanted.public else Secret(f"pcs_{secrets.token_urlsafe(32)}"))
    made = wanted.model_copy(update={"client_id": client_id, "client_secret": secret})
    insert(sql, "partner_clients", account=account, created_at=now_ms, **asdict(_to_store(made, client_id)))
    return made


def put_client(sql: sqlite3.Connection, account: int, wanted: NewClient, now_ms: int) -> str:
    """Register a client with a given id and secret, or change the one of this id; tokens that it has stay good.

    Returns:
        ``created``, ``changed`` or ``unchanged``.

    Raises:
        ApiError: 409 ``client_exists``: another account has a client of this id.
    """
    row = one(sql, "SELECT row, account FROM partner_clients WHERE client_id = ?", (wanted.client_id,))
    if row is None or row["account"] != account:
        add_client(sql, account, wanted, now_ms)
        return "created"
    client = _to_store(wanted, str(wanted.client_id))
    if find_client(sql, client.client_id) == client:
        return "unchanged"
    update(sql, "partner_clients", row["row"], **asdict(client))
    return "changed"


def find_client(sql: sqlite3.Connection, client_id: str | None) -> Client | None:
    """The client of this id, the service's own one included."""
    if client_id == SIGN_IN_ID:
        return SIGN_IN
    row = one(sql, f"SELECT {_COLUMNS} FROM partner_clients WHERE client_id = ?", (client_id,))
    return None if row is None else Client(*row)


def _to_store(client: NewClient, client_id: str) -> Client:
    return Client(
        client_id=client_id,
        name=client.name,
        redirect_uris=" ".join(client.redirect_uris),
        scope=" ".join(client.scopes),
        grant_types=" ".join(client.grant_types),
        secret_hash=None if client.client_secret is None else hash_secret(client.client_secret.reveal()),
        description=client.description,
    )


def browser_origins(sql: sqlite3.Connection) -> set[str]:
    """The web origins of all public clients: whose pages may call this service from a browser."""
    rows = sql.execute("SELECT redirect_uris FROM partner_clients WHERE secret_hash IS NULL")
    return {origin for row in rows for uri in row["redirect_uris"].split() if (origin := origin_of(uri))}


def forget_clients_of(sql: sqlite3.Connection, account: int) -> None:
    """Delete the codes, grants and tokens that people of any account gave to clients of this one."""
    theirs = "SELECT client_id FROM partner_clients WHERE account = :account"
    for statement in (
        f"DELETE FROM tokens WHERE grant_row IN (SELECT row FROM grants WHERE client_id IN ({theirs}))",
        f"DELETE FROM grants WHERE client_id IN ({theirs})",
        f"DELETE FROM authorization_codes WHERE client_id IN ({theirs})",
    ):
        sql.execute(statement, {"account": account})


# --- people ---------------------------------------------------------------------------------------------------------


def clean_email(email: str) -> str:
    """The form that an address is stored and looked up in."""
    return email.strip().lower()


def _check_email(email: str) -> str:
    email = clean_email(email)
    if not _EMAIL.fullmatch(email) or not email.isprintable() or len(email) > EMAIL_CHARACTERS:
        raise ValueError(f"{email!r:.100} is no email address: give one such as person@example.com")
    return email


def _check_password(password: Secret) -> Secret:
    if not 0 < len(password.reveal()) <= CHARACTERS:
        raise ValueError(f"a password must have 1 to {CHARACTERS} characters")
    return password


class NewPerson(Sent):
    """A person who is to sign in; the id is made when left out."""

    email: Annotated[str, AfterValidator(_check_email)]
    password: Annotated[SentSecret, AfterValidator(_check_password)]
    user_id: (
        Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_check_printable)] | None
    ) = None


def add_person(
    sql: sqlite3.Connection, account: int | None, email: str, password_hash: str, user_id: str, now_ms: int
) -> None:
    """Store a person; with an account of None one who is no manufacturer before the first approval of a partner.

    Args:
        sql: in a transaction.
        account: the account's row.
        email: of a checked :class:`NewPerson`.
        password_hash: see :func:`simulator.service.oauth.passwords.hash_password`, which takes 100 ms.
        user_id: the person's id, on the whole service.
        now_ms: this instant.

    Raises:
        ApiError: 409 ``user_exists``: the address or the id is taken, by this account or another one.
    """
    row = one(sql, "SELECT email FROM people WHERE email = ? OR id = ?", (email, user_id))
    if row is not None:
        name, taken = ("email", email) if row["email"] == email else ("user_id", user_id)
        text = f"there is a person {taken!r} already, of this account or another one"
        raise conflict("user_exists", f"{name}: {text}", [(name, text)])
    insert(sql, "people", id=user_id, account=account, email=email, password_hash=password_hash, created_at=now_ms)
    if account is not None:
        _ensure_user(sql, account, user_id, now_ms)


async def authenticate(sql: sqlite3.Connection, email: str, password: str) -> sqlite3.Row | None:
    """The person with this address and password; it takes as long when there is no such person."""
    person = find_person(sql, email) if len(email) <= EMAIL_CHARACTERS else None
    stored = None if person is None else person["password_hash"]
    if not await check_password(stored, password):
        return None
    # Meanwhile other requests ran: a reset may have deleted the person, an approval may have given them an account.
    person = find_person(sql, email)
    return person if person is not None and person["password_hash"] == stored else None


def find_person(sql: sqlite3.Connection, email: str) -> sqlite3.Row | None:
    """The person with this address, of whichever account, or of none yet."""
    return one(sql, "SELECT * FROM people WHERE email = ?", (clean_email(email),))


def provision(sql: sqlite3.Connection, person: int, account_id: str, now_ms: int) -> int:
    """Make the person a manufacturer (specification, "Account provisioning"); one who is keeps the account there is.

    Args:
        sql: in a transaction.
        person: the person's row.
        account_id: the id of the account, should one be made.
        now_ms: this instant.

    Returns:
        The account's row.
    """
    row = sql.execute("SELECT * FROM people WHERE row = ?", (person,)).fetchone()
    if row["account"] is not None:
        return int(row["account"])
    account = insert(sql, "accounts", id=account_id, name=row["email"], created_at=now_ms)
    sql.execute("UPDATE people SET account = ? WHERE row = ?", (account, person))
    _ensure_user(sql, account, row["id"], now_ms)
    return account


def _ensure_user(sql: sqlite3.Connection, account: int, user_id: str, now_ms: int) -> None:
    """A person may have devices, and is a user of the account before the first one."""
    sql.execute("INSERT OR IGNORE INTO users (account, id, created_at) VALUES (?, ?, ?)", (account, user_id, now_ms))

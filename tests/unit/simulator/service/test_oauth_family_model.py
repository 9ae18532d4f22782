"""The families of tokens as a state machine: a small model beside the real storage, in any order of what may happen."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Connection

from agent.wire.secret import Secret
from simulator.service.core.authorize import AuthorizationRequest
from simulator.service.core.client import Client
from simulator.service.core.token_family import ACCESS_S, CODE_S, LONGEST_S, REFRESH_S, Exchange
from simulator.service.storage import deleting, grants, people, tokens
from simulator.service.storage.database import Database
from simulator.service.storage.grants import Refusal

CALLBACK = "https://partner.example/callback"
CLIENTS = tuple(Client(name, name, (CALLBACK,), ("manufacturer:products",)) for name in ("one", "two"))
T0_MS = 1_767_225_600_000


@dataclass
class Pair:
    """What the model knows of a pair; times in ms."""

    access: str
    refresh: str
    access_end: int
    refresh_end: int
    rotated_at: int | None = None


@dataclass
class Family:
    """What the model knows of a code and what came of it."""

    code: str
    client: int
    code_end: int
    ends: int | None = None
    revoked: bool = False
    pairs: list[Pair] = field(default_factory=list)


class Families(RuleBasedStateMachine):
    """Codes and refresh tokens are presented by either client, once or often, in time or late."""

    families = Bundle("families")

    def __init__(self, database: Database, writer: Connection) -> None:
        super().__init__()
        self.now = T0_MS
        self.made = 0
        self.known: list[Family] = []
        self.database = database
        self.writer = writer

    def teardown(self) -> None:
        self._write(deleting.delete_all)

    def _write(self, operation):
        with self.database.writing(self.writer):
            return operation(self.writer)

    @initialize(grace_s=st.sampled_from([0, 0, 10]))
    def begin(self, grace_s: int) -> None:
        self.grace = grace_s * 1000
        person = people.make("ada@example.com", "hash", "user-0001", 1)
        self._write(lambda c: people.add(c, person, T0_MS))
        self.person = self._write(lambda c: people.find_anywhere(c, "ada@example.com")).seq

    @rule(target=families, client=st.sampled_from([0, 1]))
    def approve(self, client: int) -> Family:
        self.made += 1
        code = f"code-{self.made}"
        request = AuthorizationRequest(CLIENTS[client], CALLBACK, ("manufacturer:products",), None, None)
        self._write(lambda c: grants.issue_code(c, Secret(code), request, self.person, account_id="a", now_ms=self.now))
        family = Family(code, client, self.now + CODE_S * 1000)
        self.known.append(family)
        return family

    @rule(
        family=families, by=st.sampled_from([0, 0, 0, 1]), address=st.sampled_from([CALLBACK, CALLBACK, CALLBACK + "/"])
    )
    def redeem(self, family: Family, by: int, address: str) -> None:
        client = (family.client + by) % 2
        exchange = Exchange(address, None)
        self.made += 1
        grant_id, now = f"grant-{self.made}", self.now
        outcome = self._write(
            lambda c: grants.redeem_code(c, family.code, CLIENTS[client], exchange, grant_id=grant_id, now_ms=now)
        )
        if client != family.client:
            assert isinstance(outcome, Refusal)
        elif family.pairs:
            assert isinstance(outcome, Refusal)
            family.revoked = True
        elif self.now >= family.code_end or address != CALLBACK:
            assert isinstance(outcome, Refusal)
        else:
            family.ends = self.now + LONGEST_S * 1000
            self._learn(family, outcome)

    @rule(family=families, which=st.integers(0, 7), by=st.sampled_from([0, 0, 0, 1]))
    def refresh(self, family: Family, which: int, by: int) -> None:
        if not family.pairs:
            return
        pair = family.pairs[max(0, len(family.pairs) - 1 - which)]
        client = (family.client + by) % 2
        outcome = self._write(
            lambda c: grants.rotate(c, pair.refresh, CLIENTS[client], None, grace_ms=self.grace, now_ms=self.now)
        )
        over = client != family.client or family.revoked or self.now >= pair.refresh_end
        again = pair.rotated_at is not None
        if over:
            assert isinstance(outcome, Refusal)
        elif again and self.now - pair.rotated_at >= self.grace:
            assert isinstance(outcome, Refusal)
            family.revoked = True
        else:
            if not again:
                pair.rotated_at = self.now
            self._learn(family, outcome)

    @rule(family=families, kind=st.sampled_from([tokens.ACCESS, tokens.REFRESH]))
    def revoke(self, family: Family, kind: str) -> None:
        if not family.pairs:
            return
        pair = family.pairs[-1]
        token = pair.refresh if kind == tokens.REFRESH else pair.access
        assert self._write(lambda c: grants.revoke_token(c, token, CLIENTS[family.client], self.now)) is None
        if kind == tokens.REFRESH:
            family.revoked = True
        else:
            pair.access_end = min(pair.access_end, self.now)

    @rule(seconds=st.sampled_from([0.001, 5, 10, CODE_S, ACCESS_S, REFRESH_S - 1, REFRESH_S]))
    def wait(self, seconds: float) -> None:
        self.now += round(seconds * 1000)

    @precondition(lambda self: self.known)
    @rule()
    def prune(self) -> None:
        """What is deleted was over for good: the answers stay the same, but that a forgotten code does no harm."""
        self._write(lambda c: (tokens.prune(c, self.now), grants.prune_codes(c, self.now)))

    @invariant()
    def the_tokens_open_what_the_model_says(self) -> None:
        with self.database.reading() as connection:
            for family in self.known:
                for pair in family.pairs:
                    good = not family.revoked and pair.rotated_at is None and self.now < pair.access_end
                    found = tokens.find_bearer(connection, pair.access, self.now)
                    assert (found is not None) == good

    def _learn(self, family: Family, outcome) -> None:
        assert not isinstance(outcome, Refusal), outcome
        refresh_end = min(self.now + REFRESH_S * 1000, family.ends)
        access, refresh = outcome.access_token.reveal(), outcome.refresh_token.reveal()
        family.pairs.append(Pair(access, refresh, self.now + ACCESS_S * 1000, refresh_end))


def test_families_of_tokens_live_as_the_model_says():
    database = Database(None)
    writer = database.open_writer()
    try:
        run_state_machine_as_test(
            lambda: Families(database, writer),
            settings=settings(max_examples=40, stateful_step_count=30, deadline=None),
        )
    finally:
        writer.close()
        database.close()


@pytest.mark.parametrize("what", ["code", "refresh"])
def test_two_services_on_one_postgresql_cannot_both_win(postgresql, what):
    """The lock that keeps a second service out is taken away: the rows alone must decide who was first."""
    with postgresql.database() as url:
        database = Database(url=url)
        writer = database.open_writer()
        try:
            _race(database, writer, what)
        finally:
            writer.close()
            database.close()


def _race(database: Database, writer, what: str) -> None:
    person = people.make("ada@example.com", "hash", "user-0001", 1)
    request = AuthorizationRequest(CLIENTS[0], CALLBACK, ("manufacturer:products",), None, None)
    with database.writing(writer):
        people.add(writer, person, T0_MS)
        seq = people.find_anywhere(writer, "ada@example.com").seq
        grants.issue_code(writer, Secret("code"), request, seq, account_id="a", now_ms=T0_MS)
    exchange = Exchange(CALLBACK, None)
    first = None
    if what == "refresh":
        with database.writing(writer):
            first = grants.redeem_code(writer, "code", CLIENTS[0], exchange, grant_id="g", now_ms=T0_MS)

    def take(connection, grant_id: str):
        if first is None:
            return grants.redeem_code(connection, "code", CLIENTS[0], exchange, grant_id=grant_id, now_ms=T0_MS)
        token = first.refresh_token.reveal()
        return grants.rotate(connection, token, CLIENTS[0], None, grace_ms=0, now_ms=T0_MS)

    outcomes = []
    rival = database._read_engine.execution_options(isolation_level="READ COMMITTED")

    def second() -> None:
        with rival.connect() as connection:
            connection.connection.driver_connection.read_only = False
            with connection.begin():
                outcomes.append(take(connection, "second"))

    thread = threading.Thread(target=second)
    with database.writing(writer):
        won = take(writer, "first")
        thread.start()
        thread.join(0.3)  # it waits for the row, or it would be through by now
        assert thread.is_alive()
    thread.join(30)
    assert not isinstance(won, Refusal)
    assert isinstance(outcomes[0], Refusal)
    with database.reading() as connection:
        assert tokens.find_bearer(connection, won.access_token.reveal(), T0_MS) is None

"""What is stored of a password, at the cost that a service really takes; the other tests' people are cheap."""

from __future__ import annotations

import asyncio

import pytest
from argon2 import extract_parameters

from agent.wire.secret import Secret
from simulator.service import passwords
from tests import shortcuts

RIGHT, WRONG = Secret("correct horse battery staple"), Secret("correct horse battery stable")


@pytest.fixture
def _as_in_a_service(monkeypatch):
    monkeypatch.setattr(passwords, "_HASHER", shortcuts.PRODUCTS_HASHER)
    passwords._decoy.cache_clear()
    yield
    passwords._decoy.cache_clear()


def check(stored: str | None, password: Secret) -> bool:
    return asyncio.run(passwords.Passwords().check(stored, password))


@pytest.mark.usefixtures("_as_in_a_service")
def test_a_password_is_stored_as_owasp_says_and_nobodys_takes_as_long():
    stored = passwords.hash_password(RIGHT)
    assert stored.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert extract_parameters(passwords._decoy()) == extract_parameters(stored)
    assert [check(stored, RIGHT), check(stored, WRONG), check(None, RIGHT)] == [True, False, False]
    assert check(passwords.hash_password(RIGHT), RIGHT)
    assert passwords.hash_password(RIGHT) != stored, "each has a salt of its own"


def test_what_was_hashed_at_another_cost_can_be_checked():
    stored = shortcuts.PRODUCTS_HASHER.hash(RIGHT.reveal())
    assert passwords._HASHER is shortcuts.CHEAP_HASHER
    assert [check(stored, RIGHT), check(stored, WRONG)] == [True, False]
    assert not check("not a hash", RIGHT)

"""What is stored of a password, at the cost that a service really takes; the other tests' people are cheap."""

from __future__ import annotations

import asyncio

from simulator.service.oauth import passwords
from tests.support import shortcuts

RIGHT, WRONG = "correct horse battery staple", "correct horse battery stable"


def check(stored: str | None, password: str) -> bool:
    return asyncio.run(passwords.check_password(stored, password))


def test_a_password_is_stored_as_owasp_says_and_what_was_hashed_at_another_cost_is_checked(monkeypatch):
    cheap = passwords.hash_password(RIGHT)
    monkeypatch.setattr(passwords, "COST", shortcuts.PRODUCTS_COST)
    stored = passwords.hash_password(RIGHT)
    assert stored.startswith("scrypt$16384$8$5$")
    assert [check(stored, RIGHT), check(stored, WRONG), check(None, RIGHT)] == [True, False, False]
    assert [check(cheap, RIGHT), check(cheap, WRONG)] == [True, False]
    assert passwords.hash_password(RIGHT) != stored, "each has a salt of its own"

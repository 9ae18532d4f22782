"""The sign-in form, wherever it stands: password, wait after too many wrong ones, new session."""

from __future__ import annotations

from typing import Final

from agent.wire.secret import Secret
from simulator.service.answers import Answer
from simulator.service.http_errors import HttpError
from simulator.service.oauth.pages import WayOut
from simulator.service.oauth.visit import Visit
from simulator.service.storage import people

WRONG: Final = "The email or the password is wrong."
_EMAIL_CHARACTERS: Final = 254
_PASSWORD_CHARACTERS: Final = 1_024


async def sign_in(visit: Visit, back: str) -> Answer:
    """Check the form's email and password; on to ``back`` either way, which shows what comes next.

    The text and the time are the same for an email that nobody has and for a wrong password.
    """
    service = visit.service
    email, password = people.clean_email(visit.field("email")), visit.field("password")
    address = service.address_of(visit.call.scope)
    wait_s = service.attempts.begin(email, address, visit.now_ms)
    if wait_s:
        return _wait(visit, wait_s, back)
    person = None
    if email.isprintable() and len(email) <= _EMAIL_CHARACTERS:
        person = await service.look_up(lambda connection: people.find_anywhere(connection, email))
    stored = None if person is None or len(password) > _PASSWORD_CHARACTERS else person.password_hash
    matches = await service.passwords.check(stored, Secret(password[:_PASSWORD_CHARACTERS]))
    if person is None or not matches:
        visit.show_next("bad", WRONG, email[:_EMAIL_CHARACTERS])
        return visit.go(back)
    service.attempts.succeed(email, address, visit.now_ms)
    visit.visitor = service.sessions.sign_in(person.seq, visit.visitor, visit.now_ms)
    return visit.go(back)


def too_many_attempts(wait_s: int) -> HttpError:
    """429 with the wait in words and as ``Retry-After``."""
    minutes = -(-wait_s // 60)
    return HttpError(
        429,
        "too_many_attempts",
        f"There were too many wrong passwords. Try again in {minutes} minute{'' if minutes == 1 else 's'}.",
        headers=((b"retry-after", b"%d" % wait_s),),
    )


def _wait(visit: Visit, wait_s: int, back: str) -> Answer:
    fault = too_many_attempts(wait_s)
    return visit.trouble(
        fault,
        "Sign-in has to wait",
        advice="The wait protects your account from people who guess. If it was not you who tried, nothing is lost:"
        " your password still works when the wait is over. If you have forgotten it, ask whoever runs this service.",
        way_out=WayOut(back, "Back to sign-in"),
    )

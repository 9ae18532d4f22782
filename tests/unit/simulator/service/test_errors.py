"""Errors of storage and rules become HTTP answers in one place."""

import pytest

from simulator.service import errors
from simulator.service.errors import ServiceError, invalid_all
from simulator.service.http_errors import STATUSES, HttpError, http_error_of
from simulator.service.oauth.token import OAuthFault


def _below(kind):
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)


def test_every_error_below_http_has_a_status():
    assert {kind for kind in _below(ServiceError) if not issubclass(kind, HttpError)} == set(STATUSES)


def test_the_tree_in_the_docstring_is_the_tree():
    drawn = {line.split()[1] for line in errors.__doc__.splitlines() if line.startswith(("    |--", "    `--"))}
    assert drawn == {kind.__name__ for kind in STATUSES}


@pytest.mark.parametrize(("kind", "status"), STATUSES.items())
def test_an_error_keeps_its_words_and_says_when_to_come_back(kind, status):
    answer = http_error_of(kind("some_word", "A sentence.", retry_after_s=7)).answer()
    assert answer.status == status
    assert answer.body == b'{"error":"some_word","message":"A sentence."}'
    assert answer.headers == ((b"retry-after", b"7"),)


def test_an_error_that_is_http_already_stays_as_it_is():
    fault = OAuthFault(400, "invalid_grant", "No.")
    assert http_error_of(fault) is fault


def test_of_many_faults_five_are_in_the_sentence_and_fifty_in_the_details():
    answer = http_error_of(invalid_all([(f"f{n}", "is wrong") for n in range(60)])).answer()
    assert answer.body.count(b'"issue"') == 50
    assert b"f4: is wrong; and 55 more" in answer.body

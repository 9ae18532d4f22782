"""What a backfill needs of the service is checked before anything is sent."""

from __future__ import annotations

import pytest

from agent.errors import ConfigurationError
from agent.wire import extensions
from simulator.fleet.run.preparing import check_backfill


@pytest.mark.parametrize(
    ("offers", "says"),
    [
        (extensions.NONE, "announces no list-parameters and no recorded-at"),
        (extensions.ALL - {extensions.RECORDED_AT}, "announces no recorded-at"),
        (extensions.ALL - {extensions.LIST_PARAMETERS}, "announces no list-parameters"),
    ],
)
def test_a_backfill_is_refused_where_times_or_lists_cannot_be_kept(offers, says):
    with pytest.raises(ConfigurationError, match=says) as caught:
        check_backfill(offers)
    assert "target.dialect.extensions" in str(caught.value)


def test_a_backfill_needs_nothing_else():
    check_backfill(frozenset({extensions.RECORDED_AT, extensions.LIST_PARAMETERS}))

from __future__ import annotations

import pytest

from simulator.service.client_address import client_address, parse_networks

PROXIES = parse_networks(["10.0.0.0/8", "::1"])


def scope(peer: str | None, *forwarded: str) -> dict:
    headers = [(b"x-forwarded-for", value.encode("latin-1")) for value in forwarded]
    return {"client": None if peer is None else (peer, 1234), "headers": headers}


@pytest.mark.parametrize(
    ("peer", "forwarded", "expected"),
    [
        ("203.0.113.1", (), "203.0.113.1"),
        ("203.0.113.1", ("198.51.100.7",), "203.0.113.1"),  # no proxy of ours: anybody can write the header
        ("10.0.0.1", ("198.51.100.7",), "198.51.100.7"),
        ("10.0.0.1", ("6.6.6.6, 198.51.100.7",), "198.51.100.7"),
        ("10.0.0.1", ("198.51.100.7, 10.0.0.2",), "198.51.100.7"),
        ("10.0.0.1", ("6.6.6.6", "198.51.100.7"), "198.51.100.7"),  # two headers are one list
        ("::1", ("2001:db8::5",), "2001:db8::5"),
        ("10.0.0.1", (), "10.0.0.1"),
        ("10.0.0.1", ("10.0.0.2, 10.0.0.3",), "10.0.0.2"),
        ("10.0.0.1", ("nonsense",), "nonsense"),
        (None, ("198.51.100.7",), ""),
    ],
)
def test_the_nearest_address_that_is_no_trusted_proxy_counts(peer, forwarded, expected):
    assert client_address(scope(peer, *forwarded), PROXIES) == expected


def test_what_is_no_network_is_refused_by_name():
    with pytest.raises(ValueError, match=r"10\.0\.0\.0/33"):
        parse_networks(["10.0.0.0/33"])

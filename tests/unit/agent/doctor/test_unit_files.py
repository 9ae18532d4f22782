"""Credentials in unit files, by systemd's rules for merging."""

from __future__ import annotations

import pytest

from agent.doctor.unit_files import UnitCredential, assignments, read_credentials_of_unit


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("[Service]\nLoadCredential=token:/etc/x", (UnitCredential("token", ("/etc/x",)),)),
        ("[Unit]\nLoadCredential=token:/etc/x", ()),
        ("[Service]\n#LoadCredential=token:/etc/x\n;LoadCredential=token:/etc/x", ()),
        ("[Service]\nLoadCredential=token:/etc/x\n# drop-in\n[Service]\nLoadCredential=", ()),
        ("[Service]\nLoadCredential=token:/etc/x\nLoadCredentialEncrypted=", ()),
        (
            "[Service]\nLoadCredential=token:/etc/x\nLoadCredential=token:/etc/y",
            (UnitCredential("token", ("/etc/y",)),),
        ),
        ("[Service]\nLoadCredential = token:%E/x", (UnitCredential("token", ("/etc/x",)),)),
        ("[Service]\nLoadCredential=\\\n# in between\n  token:/etc/x", (UnitCredential("token", ("/etc/x",)),)),
        (
            "[Service]\nLoadCredentialEncrypted=token:/etc/x",
            (UnitCredential("token", ("/etc/x",), is_encrypted=True),),
        ),
        (
            "[Service]\nLoadCredential=token:/etc/x\nSetCredential=token:none",
            (UnitCredential("token", ("/etc/x",), is_optional=True),),
        ),
        (
            "[Service]\nLoadCredential=token:/etc/x\nSetCredential=token:none\nSetCredential=",
            (UnitCredential("token", ("/etc/x",)),),
        ),
        ("[Service]\nSetCredential=token:dat_1", (UnitCredential("token", (), is_optional=True),)),
    ],
)
def test_what_a_unit_hands_over(text, expected):
    assert read_credentials_of_unit(text) == expected


def test_a_name_alone_is_looked_for_in_the_stores_and_may_be_missing():
    (found,) = read_credentials_of_unit("[Service]\nLoadCredential=token")
    assert found.paths[0] == "/etc/credstore/token"
    assert found.is_optional


def test_lines_that_are_no_assignments_are_passed_over():
    assert list(assignments("# /etc/x\n\nnonsense\n[Service]\nType=notify\n")) == [("Service", "Type", "notify")]

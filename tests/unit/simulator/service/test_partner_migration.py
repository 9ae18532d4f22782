"""A database from before there were partners: who had signed in stays signed in."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, text

import simulator.service.storage.migrate as migrating
from simulator.service.config import ServiceConfig
from simulator.service.core.client import SIGN_IN, hash_secret
from simulator.service.core.token_family import LONGEST_S, TokenPair
from simulator.service.service import Service
from simulator.service.storage import grants, tokens
from simulator.service.storage.sqlite import FILE_NAME
from simulator.service.storage.tables import grants as grants_table

T0_MS = 1_767_225_600_000
OLD = """
INSERT INTO people (seq, id, manufacturer_seq, email, password_hash, created_at) VALUES (3, 'u', 1, 'a@b', 'h', 1);
INSERT INTO grants (seq, id, manufacturer_seq, person_seq, scope, created_at)
 VALUES (9, 'g', 1, 3, 'manufacturer:data', :now)
"""


def test_tokens_of_before_are_good_and_are_refreshed_with_the_sign_ins_client(tmp_path):
    config = Config()
    config.set_main_option("script_location", str(Path(migrating.__file__).with_name("migrations")))
    config.set_main_option("path_separator", "os")
    engine = create_engine(f"sqlite:///{tmp_path / FILE_NAME}")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0003")
        for statement in OLD.strip().split(";\n"):
            connection.execute(text(statement), {"now": T0_MS} if ":now" in statement else {})
        for kind in ("access", "refresh"):
            values = {"hash": hash_secret(f"old-{kind}"), "kind": kind, "now": T0_MS, "end": T0_MS + 60_000}
            insert = "INSERT INTO tokens (token_hash, manufacturer_seq, grant_seq, kind, created_at, expires_at)"
            connection.execute(text(f"{insert} VALUES (:hash, 1, 9, :kind, :now, :end)"), values)
    engine.dispose()
    service = Service(ServiceConfig(data_dir=tmp_path))
    try:
        caller = service.read_now(lambda c: tokens.find_bearer(c, "old-access", T0_MS + 1))
        assert caller is not None
        assert (caller.manufacturer_seq, caller.scopes) == (1, {"manufacturer:data"})
        assert service.read_now(lambda c: c.execute(grants_table.select()).one()).ends_at == T0_MS + LONGEST_S * 1000
        pair = service.writer.call(
            lambda c: grants.rotate(c, "old-refresh", SIGN_IN, None, grace_ms=0, now_ms=T0_MS + 2)
        )
        assert isinstance(pair, TokenPair)
        found = service.read_now(lambda c: tokens.find_bearer(c, pair.access_token.reveal(), T0_MS + 3))
        assert found is not None
        assert found.scopes == {"manufacturer:data"}
    finally:
        service.close()

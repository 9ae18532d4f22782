"""What a product's database holds from the start, whether the product is new or older than databases are."""

from __future__ import annotations

import json
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, select

import simulator.service.storage.migrate as migrating
from simulator.service.config import ServiceConfig
from simulator.service.core.columns import COMMAND_RESULTS
from simulator.service.service import Service
from simulator.service.storage import databases, products
from simulator.service.storage.sqlite import FILE_NAME
from simulator.service.storage.tables import database_tables
from simulator.wire.products import NewProduct


def _tables(service):
    return service.read_now(lambda c: c.execute(select(database_tables).order_by(database_tables.c.seq)).all())


def test_a_product_of_the_first_release_gets_the_table_that_a_new_one_has(tmp_path):
    config = Config()
    config.set_main_option("script_location", str(Path(migrating.__file__).with_name("migrations")))
    config.set_main_option("path_separator", "os")
    engine = create_engine(f"sqlite:///{tmp_path / FILE_NAME}")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.exec_driver_sql(
            "INSERT INTO products (seq, id, manufacturer_seq, definition, created_at, updated_at)"
            " VALUES (5, 'old', 1, '{\"name\":\"x\"}', 7, 7)"
        )
    engine.dispose()
    service = Service(ServiceConfig(data_dir=tmp_path))
    service.writer.call(lambda c: products.add(c, 1, NewProduct(name="x"), "new", 9))
    old, new = _tables(service)
    service.close()
    assert (old.product_seq, old.created_at, new.created_at) == (5, 7, 9)
    assert old.id != new.id
    assert (old.table_name, old.schema_seq) == (new.table_name, new.schema_seq) == ("command_results", None)
    assert json.loads(old.columns) == json.loads(new.columns) == [column.show() for column in COMMAND_RESULTS]
    assert databases.columns_of(old) == COMMAND_RESULTS


def test_a_deleted_product_leaves_no_row_behind(tmp_path):
    service = Service(ServiceConfig(data_dir=tmp_path))
    service.writer.call(lambda c: products.add(c, 1, NewProduct(name="x"), "p", 9))
    service.writer.call(lambda c: products.remove(c, 1, "p"))
    assert _tables(service) == []
    service.close()

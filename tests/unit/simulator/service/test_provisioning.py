"""What a product's database holds from the start."""

from __future__ import annotations

from sqlalchemy import select

from simulator.service.config import ServiceConfig
from simulator.service.core.columns import COMMAND_RESULTS
from simulator.service.service import Service
from simulator.service.storage import databases, products
from simulator.service.storage.tables import database_tables
from simulator.wire.products import NewProduct


def _tables(service):
    return service.read_now(lambda c: c.execute(select(database_tables).order_by(database_tables.c.seq)).all())


def test_a_new_product_has_the_table_of_results(tmp_path):
    service = Service(ServiceConfig(data_dir=tmp_path))
    service.writer.call(lambda c: products.add(c, 1, NewProduct(name="x"), "new", 9))
    [table] = _tables(service)
    service.close()
    assert (table.table_name, table.schema_seq, table.created_at) == ("command_results", None, 9)
    assert databases.columns_of(table) == COMMAND_RESULTS


def test_a_deleted_product_leaves_no_row_behind(tmp_path):
    service = Service(ServiceConfig(data_dir=tmp_path))
    service.writer.call(lambda c: products.add(c, 1, NewProduct(name="x"), "p", 9))
    service.writer.call(lambda c: products.remove(c, 1, "p"))
    assert _tables(service) == []
    service.close()

"""Product databases: schemas, tables, changed records (specification, "Database")."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, StringConstraints

from agent.wire.base import Items, JsonObject, LooseTime, Received, Sent, Text
from agent.wire.limits import NAME_CHARACTERS

ColumnType = Literal["string", "number", "integer", "boolean", "datetime", "json"]

Name = Annotated[str, StringConstraints(min_length=1, max_length=NAME_CHARACTERS)]
"""What a schema, a table or a column is called."""


class NewSchema(Sent):
    """``POST /products/{productId}/database/schemas``."""

    name: Name
    description: str | None = None


class Schema(Received):
    """A schema of a product's database."""

    schema_id: str = Field(default="", validation_alias=AliasChoices("schema_id", "schemaId", "id"))
    product_id: str | None = Field(default=None, validation_alias=AliasChoices("product_id", "productId"))
    name: str = ""
    description: str | None = None
    created_at: LooseTime = None


class NewColumn(Sent):
    """A column of a new table.

    Attributes:
        default: what a record gets that leaves the column out.
    """

    name: Name
    type: ColumnType
    required: bool = False
    default: Any = None


class NewTable(Sent):
    """``POST /database/tables``."""

    schema_id: Text
    table_name: Name
    columns: Annotated[Items[NewColumn], Field(min_length=1)]


class Column(Received):
    """A column of a table."""

    name: str = ""
    type: str = ""
    required: bool = False
    default: Any = None


class Table(Received):
    """A table of a schema."""

    table_id: str = Field(default="", validation_alias=AliasChoices("table_id", "tableId", "id"))
    schema_id: str | None = Field(default=None, validation_alias=AliasChoices("schema_id", "schemaId"))
    table_name: str = Field(default="", validation_alias=AliasChoices("table_name", "name"))
    columns: tuple[Column, ...] = ()
    created_at: LooseTime = None


class RuntimeRecordChange(Sent):
    """``PUT /database/runtime-data/{id}``: the new content, which replaces the old."""

    data_payload: JsonObject

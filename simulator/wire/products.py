"""Products and their command vocabulary (specification, "Product" and "Products")."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import AliasChoices, ConfigDict, Field, StringConstraints, model_validator

from agent.wire.base import Items, JsonObject, LooseTime, Received, Sent, Text

_KEY: Final = r"ed25519:[A-Za-z0-9_-]{43}|hmac-sha256:([A-Za-z0-9_-]{4}){5,41}[A-Za-z0-9_-]{2,4}"
LabelKeyText = Annotated[str, StringConstraints(pattern=f"^({_KEY})$")]
"""A ``label_key`` (:mod:`simulator.wire.qr.keys`): a public key, or the secret of an HMAC, 16 to 126 bytes."""
KeptLabelKeyText = Annotated[str, StringConstraints(pattern=f"^({_KEY}|hmac-sha256:id=[0-9a-f]{{16}})$")]
"""The same, or the way in which a secret one is shown, which leaves it as it is."""


class NewCommandDefinition(Sent):
    """One word of a product's command vocabulary, as it is set.

    Attributes:
        payload_schema: JSON Schema 2020-12 of the ``command_payload``.
    """

    name: Text
    title: str | None = None
    description: str | None = None
    payload_schema: JsonObject | None = None


class NewProduct(Sent):
    """``POST /products``. Members that are not named here are stored and returned as they are.

    Attributes:
        label_key: the key that checks this product's labels; a service shows the name of a secret one, not the key.
    """

    model_config = ConfigDict(extra="allow")

    name: Text
    category: str | None = None
    model: str | None = None
    description: str | None = None
    commands: Items[NewCommandDefinition] | None = None
    image_url: str | None = None
    metadata: JsonObject | None = None
    status: str | None = None
    label_key: LabelKeyText | None = None


class ProductChange(Sent):
    """``PUT /products/{productId}``: only the fields to change, at least one that is named here.

    None is a value: it clears an optional field. ``name`` cannot be cleared.
    """

    model_config = ConfigDict(extra="allow")

    name: Text | None = None
    category: str | None = None
    model: str | None = None
    description: str | None = None
    commands: Items[NewCommandDefinition] | None = None
    image_url: str | None = None
    metadata: JsonObject | None = None
    status: str | None = None
    label_key: KeptLabelKeyText | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.model_fields_set & type(self).model_fields.keys():
            raise ValueError(f"give at least one field to change: {', '.join(type(self).model_fields)}")
        if "name" in self.model_fields_set and self.name is None:
            raise ValueError("name cannot be cleared: leave it out to keep it")
        return self

    def to_wire(self) -> JsonObject:
        """Only what was given, None included."""
        return self.model_dump(exclude_unset=True)


class CommandDefinition(Received):
    """One word of a product's command vocabulary."""

    name: str = ""
    title: str | None = None
    description: str | None = None
    payload_schema: JsonObject | None = None


class Product(Received):
    """A product. Members that are not named here are kept in ``model_extra``."""

    model_config = ConfigDict(extra="allow")

    product_id: str = Field(default="", validation_alias=AliasChoices("product_id", "productId", "id"))
    name: str = ""
    category: str | None = None
    model: str | None = None
    description: str | None = None
    commands: tuple[CommandDefinition, ...] = ()
    image_url: str | None = None
    metadata: JsonObject | None = None
    status: str | None = None
    label_key: str | None = None
    created_at: LooseTime = None
    updated_at: LooseTime = None

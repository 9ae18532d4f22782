"""The two products that a corpus is made for: made up, given, or made on the server for the length of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from random import Random
from typing import Final

from agent.errors import ServiceError
from simulator.labels.corpus.case import Setting
from simulator.wire.client import ServiceClient
from simulator.wire.products import NewProduct
from simulator.wire.qr.keys import ED25519, LabelSigner

NAMES: Final = ("Label corpus, unsigned", "Label corpus, signed")


def made_up_signer(seed: int) -> LabelSigner:
    """A key that everybody can make again: good for a corpus and for nothing else."""
    return LabelSigner(ED25519, Random(f"{seed}/label-corpus-key").randbytes(32))  # noqa: S311 - that is the point


def made_up_setting(seed: int, signer: LabelSigner, host: str) -> Setting:
    """Products that no server has yet."""
    blank = Setting("", "", signer, host, seed)
    return Setting(blank.no_product_id("unsigned"), blank.no_product_id("signed"), signer, host, seed)


@contextlib.contextmanager
def products_on(client: ServiceClient, seed: int, signer: LabelSigner, host: str) -> Iterator[Setting]:
    """Two new products on the server, deleted at the end of the block.

    Raises:
        ServiceError: the server makes no products, or keeps no ``label_key``.
    """
    made: list[str] = []
    try:
        for name, key in zip(NAMES, (None, signer.reveal_label_key()), strict=True):
            description = "Made by fleet-simulator labels corpus; it deletes it when it is done."
            made.append(client.create_product(NewProduct(name=name, description=description, label_key=key)).product_id)
        yield Setting(made[0], made[1], signer, host, seed)
    finally:
        for product_id in made:
            # What went wrong before counts more, and a server that does not delete is no fault of its scanner.
            with contextlib.suppress(ServiceError):
                client.delete_product(product_id)

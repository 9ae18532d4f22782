"""The labels of cases, and the products that they need: made when a case first needs them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from agent.errors import Conflict, ErrorAnswer, RateLimited, ServerFault, Unauthorized
from simulator.onboarding.cases import Case, Label
from simulator.onboarding.journal import Journal
from simulator.onboarding.retrying import Retrier
from simulator.onboarding.steps import MARK, NEVER_MADE, Subject
from simulator.wire.client import ServiceClient
from simulator.wire.products import NewProduct, ProductChange
from simulator.wire.qr import LabelText, encode_label
from simulator.wire.qr.keys import ED25519, LabelSigner

_NO_STRANGER: Final = "it needs a second account: give --other-api-key and --other-secret-key-file"


class CaseUnavailable(Exception):
    """A case cannot be played here; the text says what it needs."""


@dataclass(frozen=True, slots=True)
class ProductAccount:
    """An account with its client and quota, for lists, products and removals.

    Attributes:
        client: makes the requests.
        retrier: keeps its quota.
        name: for the journal; empty for the account that the run is about.
    """

    client: ServiceClient
    retrier: Retrier
    name: str = ""


class CaseLabels:
    """Makes labels for cases, and their products when first needed; everything is marked and in the journal.

    Args:
        run: names everything that is made.
        home: the account that the run is about.
        stranger: another account, if there are credentials of one.
        journal: what was made.
        product_id: an existing product to use for most labels, instead of a new one.
    """

    def __init__(
        self,
        run: str,
        home: ProductAccount,
        stranger: ProductAccount | None,
        journal: Journal,
        product_id: str | None = None,
    ) -> None:
        self._run = run
        self._home = home
        self._stranger = stranger
        self._journal = journal
        # Keys for one run's made-up product; nothing is proven by them.
        self._before, self._after = (
            LabelSigner(ED25519, hashlib.sha256(f"{run}{n}".encode()).digest()) for n in (1, 2)
        )
        self._products: dict[Label, str | CaseUnavailable] = {Label.UNKNOWN_PRODUCT: NEVER_MADE}
        if product_id is not None:
            self._products[Label.FRESH] = product_id

    def labels_of(self, case: Case, tag: str) -> list[Subject]:
        """The case's labels, ``tag`` in their identifiers; a copy is the same label again.

        Raises:
            CaseUnavailable: something that the case needs cannot be had.
            ServiceError: a product could not be made, for another reason than that it may not.
        """
        if case.needs_stranger and self._stranger is None:
            raise CaseUnavailable(_NO_STRANGER)
        identifier = f"OB-{self._run}-{tag}"
        return [self._label(label, identifier, case.labels) for label in case.labels]

    def _label(self, label: Label, identifier: str, labels: tuple[Label, ...]) -> Subject:
        product_id = self._product(labels[0] if label is Label.COPY else label)
        text = LabelText(product_id, identifier)
        if label is Label.RESIGNED:
            text = self._before.sign(text)
        name = f"{MARK}{self._run}:{identifier}"
        return Subject(encode_label(text), product_id, identifier, device_name=name, is_new=True)

    def _product(self, label: Label) -> str:
        if label not in self._products:
            try:
                self._products[label] = self._makers()[label]()
            except ErrorAnswer as error:
                if isinstance(error, (ServerFault, Conflict, RateLimited, Unauthorized)):
                    raise
                self._products[label] = CaseUnavailable(
                    f"it needs a product of its own, and there the service said: {error}"
                )
        found = self._products[label]
        if isinstance(found, CaseUnavailable):
            raise found
        return found

    def _makers(self) -> dict[Label, Callable[[], str]]:
        return {
            Label.FRESH: lambda: self._make(self._home, "product"),
            Label.OTHER_PRODUCT: lambda: self._make(self._home, "other product"),
            Label.DELETED_PRODUCT: self._make_deleted,
            Label.RESIGNED: self._make_resigned,
            Label.STRANGERS_PRODUCT: self._make_strange,
        }

    def _make(self, account: ProductAccount, what: str, label_key: str | None = None) -> str:
        name = f"{MARK}{self._run}:{what}"
        self._journal.add("creating", account=account.name, name=name)
        try:
            # A new product is not asked for again after a lost answer; a 429 is certain to have made none.
            product = account.retrier.call_once(
                lambda: account.client.create_product(NewProduct(name=name, label_key=label_key))
            )
        except ErrorAnswer as error:
            if not isinstance(error, ServerFault):
                self._journal.add("not_created", account=account.name, name=name)
            raise
        self._journal.add("created", account=account.name, name=name, product_id=product.product_id)
        return product.product_id

    def _make_deleted(self) -> str:
        product_id = self._make(self._home, "deleted product")
        self._home.retrier.call(lambda: self._home.client.delete_product(product_id))
        self._journal.add("deleted", account=self._home.name, product_id=product_id)
        return product_id

    def _make_resigned(self) -> str:
        product_id = self._make(self._home, "re-signed product", self._before.reveal_label_key())
        change = ProductChange(label_key=self._after.reveal_label_key())
        self._home.retrier.call(lambda: self._home.client.change_product(product_id, change))
        return product_id

    def _make_strange(self) -> str:
        if self._stranger is None:
            raise CaseUnavailable(_NO_STRANGER)
        return self._make(self._stranger, "another account's product")

"""One run of ``labels corpus``: make the payloads for two products, write them, send them to a server."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from agent.errors import ServiceError
from agent.wire.auth import KeyPair
from simulator.credentials import read_secret_file
from simulator.labels.corpus.case import Setting
from simulator.labels.corpus.collection import Entry, collect
from simulator.labels.corpus.folder import WrittenCorpus, write_corpus
from simulator.labels.corpus.sending import AnsweredEntry, RetryPolicy, others, send_all
from simulator.labels.errors import LabelError
from simulator.wire.client import ServiceClient
from simulator.wire.products import NewProduct
from simulator.wire.qr.keys import ED25519, LabelSigner, read_label_signer
from simulator.wire.qr.link_form import host_fault

OnProgress = Callable[[int, int], None]
_ID_MIN: Final = 4


@dataclass(frozen=True, slots=True)
class CorpusOptions:
    """The options of one run; names as on the command line."""

    out: Path | None = None
    against: str | None = None
    api_key: str | None = None
    secret_key_file: Path | None = None
    ca_file: Path | None = None
    product_id: str | None = None
    signed_product_id: str | None = None
    sign_key_file: Path | None = None
    link_host: str = "onboard.example.com"
    seed: int = 0
    any_refusal: bool = False
    timeout_s: float = 10.0
    max_wait_s: float = 120.0
    replace: bool = False


@dataclass(frozen=True, slots=True)
class CorpusRun:
    """The result of one run.

    Attributes:
        entries: the payloads.
        written: the folder, when there is one.
        asked: the answers, when a server was asked.
        any_refusal: as it was asked for.
    """

    entries: tuple[Entry, ...]
    written: WrittenCorpus | None
    asked: tuple[AnsweredEntry, ...] | None
    any_refusal: bool

    @property
    def invalid(self) -> int:
        """Payloads that must be refused."""
        return sum(not entry.of.valid for entry in self.entries)

    @property
    def classes(self) -> int:
        """Their classes."""
        return len({entry.of.name for entry in self.entries if not entry.of.valid})

    @property
    def passed(self) -> bool:
        """Whether every answer was as expected; without a server there is none that was not."""
        return not others(self.asked or (), any_refusal=self.any_refusal)


def run_corpus(
    options: CorpusOptions, sleep: Callable[[float], None], on_progress: OnProgress | None = None
) -> CorpusRun:
    """Do what the options ask for.

    Raises:
        ConfigurationError: keys that cannot be read, an address that cannot be used.
        LabelError: options that contradict each other, a folder that cannot be written.
        ServiceError: the server cannot be reached, refuses the keys, or makes no products.
    """
    _check(options)
    signer = made_up_signer(options.seed) if options.sign_key_file is None else read_label_signer(options.sign_key_file)
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(_client(options)) if options.against else None
        setting = _setting(options, signer, client, stack)
        entries = collect(setting)
        written = None
        if options.out is not None:
            # The secret of a real product is only named; one that was made up from the seed is no secret.
            label_key = signer.key.shown if options.sign_key_file else signer.reveal_label_key()
            drawing = None if client else on_progress
            written = write_corpus(
                entries, setting, options.out, label_key=label_key, replace=options.replace, on_progress=drawing
            )
        asked = None
        if client is not None:
            asked = send_all(client.connection, entries, RetryPolicy(sleep, options.max_wait_s), on_progress)
    return CorpusRun(entries, written, asked, options.any_refusal)


def _check(options: CorpusOptions) -> None:
    if options.out is None and not options.against:
        raise LabelError("nothing to do: give --out for a folder, --against for a server, or both")
    if (options.product_id is None) != (options.signed_product_id is None):
        raise LabelError("--product-id and --signed-product-id go together: give both or neither")
    if options.product_id is not None and options.product_id == options.signed_product_id:
        raise LabelError("--product-id and --signed-product-id are the same: a product signs its labels or does not")
    for product_id in (options.product_id, options.signed_product_id):
        if product_id is not None and len(product_id) < _ID_MIN:
            raise LabelError(f"the product id {product_id!r} is too short to be changed: give one of {_ID_MIN} or more")
    fault = host_fault(options.link_host)
    if fault is None and not ("." in options.link_host and any(each.isalpha() for each in options.link_host)):
        fault = f"{options.link_host!r} has no letter and no dot to change"
    if fault is not None:
        raise LabelError(f"{fault}: give another --link-host, such as onboard.example.com")


def _setting(
    options: CorpusOptions, signer: LabelSigner, client: ServiceClient | None, stack: contextlib.ExitStack
) -> Setting:
    if options.product_id and options.signed_product_id:
        return Setting(options.product_id, options.signed_product_id, signer, options.link_host, options.seed)
    if client is not None:
        return stack.enter_context(products_on(client, options.seed, signer, options.link_host))
    return made_up_setting(options.seed, signer, options.link_host)


def _client(options: CorpusOptions) -> ServiceClient:
    path = options.secret_key_file
    if path is None or options.against is None or options.api_key is None:
        raise LabelError("--against needs --api-key and --secret-key-file")
    keys = KeyPair(options.api_key, read_secret_file(path, "--secret-key-file"))
    return ServiceClient(options.against, keys, timeout_s=options.timeout_s, ca_file=options.ca_file)


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

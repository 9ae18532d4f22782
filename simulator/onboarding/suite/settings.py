"""What the suite is about, and the labels and products that it needs; handed over as a plug-in of pytest."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final

import pytest

from agent.errors import ErrorAnswer, RateLimited, ServerFault, Unauthorized
from simulator.onboarding.cases import Case, Label
from simulator.onboarding.patience import Patience
from simulator.onboarding.run_file import RunFile
from simulator.onboarding.session import NEVER_MADE, Subject
from simulator.wire.client import ServiceClient
from simulator.wire.models import NewProduct, ProductChange
from simulator.wire.qr import LabelText, encode_label
from simulator.wire.qr.keys import ED25519, LabelSigner

_PLUGIN: Final = "onboarding_settings"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says.

    Attributes:
        client: with the account that is tested.
        file: remembers what is made.
        patience: how long a request waits for the quota.
        product_id: a product for most labels; empty makes one.
        is_strict: bad payloads must be refused with the status and the error of our service.
        repeat: how often each race is run.
        silent: what the server does where the specification says nothing, collected for the summary.
    """

    client: ServiceClient
    file: RunFile
    patience: Patience
    product_id: str = ""
    is_strict: bool = False
    repeat: int = 1
    silent: list[str] = field(default_factory=list)


class SettingsPlugin:
    """Carries the settings to the suite."""

    __name__ = _PLUGIN

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List what the server does where the specification is silent."""
        if self.settings.silent:
            terminalreporter.section("where the specification is silent, this server answers")
            for line in self.settings.silent:
                terminalreporter.write_line(line)


def settings_of(config: pytest.Config) -> Settings:
    """The settings of this run."""
    plugin = config.pluginmanager.get_plugin(_PLUGIN)
    if not isinstance(plugin, SettingsPlugin):
        raise pytest.UsageError("start this suite with: fleet-simulator onboard cases")
    return plugin.settings


class Products:
    """The products of the run's labels, made when first needed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.tag = settings.file.about["run"]
        self.before = LabelSigner(ED25519, hashlib.sha256(self.tag.encode()).digest())
        self._made: dict[Label, str] = {Label.UNKNOWN_PRODUCT: NEVER_MADE}
        if settings.product_id:
            self._made[Label.FRESH] = settings.product_id

    def of(self, label: Label) -> str:
        """The id of the product that such a label belongs to; skips the test when it cannot be had."""
        if label not in self._made:
            self._made[label] = self._make(label)
        return self._made[label]

    def _make(self, label: Label) -> str:
        if label is Label.RESIGNED:
            product_id = self.make(label.value, self.before.reveal_label_key())
            after = LabelSigner(ED25519, hashlib.sha256(b"after").digest())
            self._settings.client.change_product(product_id, ProductChange(label_key=after.reveal_label_key()))
            return product_id
        product_id = self.make(label.value)
        if label is Label.DELETED_PRODUCT:
            self._settings.client.delete_product(product_id)
        return product_id

    def make(self, what: str, label_key: str | None = None) -> str:
        """Make a product; skips the test when the server makes none."""
        new = NewProduct(name=self._settings.file.mark + what, label_key=label_key)
        try:
            return self._settings.patience.call(lambda: self._settings.client.create_product(new)).product_id
        except ErrorAnswer as error:
            if isinstance(error, (ServerFault, RateLimited, Unauthorized)):
                raise
            pytest.skip(f"it needs a product of its own, and the server said: {error}")

    def subjects(self, case: Case, name: str) -> list[Subject]:
        """The labels of a case, of a device that nobody has seen before."""
        identifier = f"OB-{self.tag}-{name}"
        made = []
        for label in case.labels:
            product_id = self.of(case.labels[0] if label is Label.COPY else label)
            text = LabelText(product_id, identifier)
            text = self.before.sign(text) if label is Label.RESIGNED else text
            device_name = self._settings.file.mark + identifier
            made.append(Subject(encode_label(text), product_id, identifier, device_name, is_new=True))
        return made

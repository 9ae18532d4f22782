"""The first act: a product, labels that are read back from their pictures, and devices registered from them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.errors import UnexpectedAnswer
from simulator.demo.folder import DemoFolder
from simulator.demo.proofs import Proof, prove_labels, prove_onboarding
from simulator.demo.stage import DemoDevices
from simulator.fleet.products import load_product
from simulator.fleet.runner import DeviceIdentity
from simulator.labels.make import Batch, make_labels
from simulator.labels.reading import read_labels
from simulator.onboarding.session import Accounts, Subject
from simulator.onboarding.walk import OnboardingReport, drive_labels
from simulator.wire.client import ServiceClient
from simulator.wire.products import Product

USER_ID: Final = "demo-user"
_TEMPLATE: Final = "CN1-{serial:06d}"
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Onboarded:
    """What the first act leaves.

    Attributes:
        labels: the batch.
        pictures: device id -> the PNG of its label.
    """

    devices: DemoDevices
    labels: Batch
    pictures: dict[str, Path]


def make_product(client: ServiceClient) -> Product:
    """Create the demo's product."""
    return client.create_product(load_product())


def print_labels(product_id: str, count: int, folder: DemoFolder, on_progress: OnProgress) -> tuple[Batch, Proof]:
    """Make the labels and the sheet, and read every PNG file back."""
    batch = make_labels(
        product_id=product_id, count=count, out=folder.labels, template=_TEMPLATE, on_progress=on_progress
    )
    if batch.sheet is not None:
        shutil.copyfile(batch.sheet, folder.sheet)
    read = read_labels([label.png for label in batch.labels if label.png])
    texts = [label.order.text for label in batch.labels]
    return batch, prove_labels(texts, [found.text for found in read if found.label])


def register(client: ServiceClient, batch: Batch, on_progress: OnProgress) -> tuple[Onboarded, OnboardingReport, Proof]:
    """Scan, register and list every label's device, from the text that its picture gave.

    Raises:
        UnexpectedAnswer: a device could not be registered, so the story cannot go on.
    """
    read = {found.text: found.path for found in read_labels([label.png for label in batch.labels if label.png])}
    subjects = [
        Subject(label.text, label.product_id, label.identifier, str(read.get(label.text, "")))
        for label in (made.order for made in batch.labels)
        if label.text in read
    ]
    report = drive_labels(
        subjects,
        Accounts(client, USER_ID),
        remove=False,
        on_journey=lambda _, done, count: on_progress(done, count),
    )
    failed = [journey for journey in report.journeys if not journey.passed]
    if not report.passed:
        steps = [f"{step.action}: {step.answered} {step.detail}" for step in failed[0].steps] if failed else []
        raise UnexpectedAnswer(f"onboarding failed: {'; '.join(steps) or report.stopped_by}")
    listed = [device.device_identifier or "" for device in client.user_devices(USER_ID)]
    proof = prove_onboarding([subject.device_identifier for subject in subjects], listed)
    identities = [
        DeviceIdentity(journey.device_id, journey.subject.product_id, _name(index))
        for index, journey in enumerate(report.journeys)
    ]
    pictures = {
        journey.device_id: Path(journey.subject.source) for journey in report.journeys if journey.subject.source
    }
    return Onboarded(DemoDevices(identities[0], tuple(identities[1:])), batch, pictures), report, proof


def _name(index: int) -> str:
    return "real-agent" if index == 0 else f"virtual-{index + 1:02d}"

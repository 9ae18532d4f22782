"""The fixtures of the suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simulator.labels.corpus import made_up_signer
from simulator.onboarding.cleanup import clean_up
from simulator.onboarding.session import Accounts
from simulator.onboarding.suite.settings import Products, Settings, settings_of
from simulator.wire.qr.keys import LabelSigner


@pytest.fixture(scope="session")
def settings(pytestconfig: pytest.Config) -> Iterator[Settings]:
    """The settings; all that the run has made is taken back at its end."""
    found = settings_of(pytestconfig)
    yield found
    report = clean_up(found.file, found.client, found.patience)
    if report.problems:
        pytest.fail("left behind: " + "; ".join(report.problems))


@pytest.fixture(scope="session")
def products(settings: Settings) -> Products:
    """The products of the run."""
    return Products(settings)


@pytest.fixture(scope="session")
def accounts(settings: Settings, products: Products) -> Accounts:
    """Who makes requests."""
    users = f"onboard-{products.tag}-a", f"onboard-{products.tag}-b"
    return Accounts(settings.client, *users, settings.patience, settings.file)


@pytest.fixture(scope="session")
def signer() -> LabelSigner:
    """The key of the product that signs its labels."""
    return made_up_signer()

"""Take back what a run made: by its journal, or by the mark in the names of what it made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.errors import ConfigurationError, Conflict, NotFound, ServiceError, TransportError
from agent.wire.devices import Device
from simulator.onboarding import journal as journal_files
from simulator.onboarding.case_labels import ProductAccount
from simulator.onboarding.journal import Journal, Leftovers, Place, leftovers, read_journal
from simulator.onboarding.steps import MARK


@dataclass(slots=True)
class CleanupReport:
    """What a cleanup did.

    Attributes:
        devices, products: ids that were removed.
        gone: how many were not there any more.
        problems: what is left, one sentence each.
    """

    devices: list[str] = field(default_factory=list)
    products: list[str] = field(default_factory=list)
    gone: int = 0
    problems: list[str] = field(default_factory=list)
    is_lost: bool = False
    """The service did not answer at last; what is left is named and not asked for."""

    def add(self, other: CleanupReport) -> None:
        """Take another cleanup's work into this report."""
        self.devices += other.devices
        self.products += other.products
        self.gone += other.gone
        self.problems += other.problems


def clean_up(
    journal: Journal, accounts: Mapping[str, ProductAccount], on_done: Callable[[int, int], None] | None = None
) -> CleanupReport:
    """Take back all that the journal says is left, and write down that it is gone.

    Registrations without a known outcome are looked up first. Killed in between, it goes on where it was.

    Args:
        journal: open; what is removed is added to it.
        accounts: by the name in the journal; what belongs to one that is missing stays, and is named.
        on_done: called after each, with those done and in all.
    """
    report = CleanupReport()
    _settle(journal, accounts, report)
    left = leftovers(journal.entries)
    jobs = [
        *((accounts.get(place.account), "device", device_id) for device_id, place in left.devices.items()),
        *((accounts.get(account), "product", product_id) for account, product_id in left.products),
    ]
    for index, (account, kind, its_id) in enumerate(jobs):
        if account is None:
            report.problems.append(
                f"{kind} {its_id} belongs to the other account: give its credentials, --other-api-key"
            )
        elif report.is_lost:
            report.problems.append(f"{kind} {its_id} is left, since the service does not answer")
        elif _remove(account, kind, its_id, report):
            event, name = ("removed", "device_id") if kind == "device" else ("deleted", "product_id")
            journal.add(event, account=account.name, **{name: its_id})
        if on_done:
            on_done(index + 1, len(jobs))
    return report


def clean_up_file(
    path: Path,
    accounts: Mapping[str, ProductAccount],
    base_url: str,
    on_done: Callable[[int, int], None] | None = None,
) -> CleanupReport:
    """Take back all that a journal's file, or the one in a folder, says is left.

    Raises:
        ConfigurationError: it cannot be read, or is of another service.
    """
    file = path / journal_files.NAME if path.is_dir() else path
    header, _ = read_journal(file)
    if header.get("base_url") != base_url:
        fault = f"{file} is of {header.get('base_url')}, and --base-url is {base_url}: give the one that the run used"
        raise ConfigurationError([fault], "--base-url")
    with Journal(file, header) as journal:
        report = clean_up(journal, accounts, on_done)
        if not report.problems:
            journal.add(journal_files.CLEANED)  # whoever resumes the run begins a new one
        return report


def find_marked(account: ProductAccount, run: str | None = None) -> Leftovers:
    """What the account holds with the mark of these commands in its name: of one run, or of all.

    Raises:
        ServiceError: the lists could not be read.
    """
    mark = MARK if run is None else f"{MARK}{run}:"
    devices = account.retrier.call(lambda: list(account.client.devices()))
    products = account.retrier.call(lambda: list(account.client.products()))
    return Leftovers(
        {
            device.device_id: Place(
                account.name, device.user_id or "", device.product_id or "", device.device_identifier or ""
            )
            for device in devices
            if (device.device_name or "").startswith(mark)
        },
        (),
        tuple((account.name, product.product_id) for product in products if product.name.startswith(mark)),
        (),
    )


def remove_marked(
    account: ProductAccount, left: Leftovers, on_done: Callable[[int, int], None] | None = None
) -> CleanupReport:
    """Remove what :func:`find_marked` found."""
    report = CleanupReport()
    jobs = [*(("device", its_id) for its_id in left.devices), *(("product", its_id) for _, its_id in left.products)]
    for index, (kind, its_id) in enumerate(jobs):
        _remove(account, kind, its_id, report)
        if on_done:
            on_done(index + 1, len(jobs))
    return report


def _remove(account: ProductAccount, kind: str, its_id: str, report: CleanupReport) -> bool:
    """Whether it is gone now."""
    try:
        if kind == "device":
            account.retrier.call(lambda: account.client.remove_device(its_id))
            report.devices.append(its_id)
        else:
            account.retrier.call(lambda: account.client.delete_product(its_id))
            report.products.append(its_id)
    except NotFound:
        report.gone += 1
    except Conflict as conflict:
        report.problems.append(f"{kind} {its_id} is kept, since it is in use: {conflict}")
        return False
    except ServiceError as error:
        report.is_lost = isinstance(error, TransportError)
        report.problems.append(f"{kind} {its_id} could not be removed: {error}")
        return False
    return True


def _settle(journal: Journal, accounts: Mapping[str, ProductAccount], report: CleanupReport) -> None:
    """Find out what became of registrations and products whose answer nobody has seen."""
    left = leftovers(journal.entries)
    listed: dict[tuple[str, str], list[Device]] = {}
    for place in left.in_doubt:
        account = accounts.get(place.account)
        if account is None:
            report.problems.append(f"{place.device_identifier} of the other account is in doubt: give its credentials")
            continue
        key = (place.account, place.user_id)
        if report.is_lost:
            report.problems.append(f"{place.device_identifier} is in doubt, and the service does not answer")
            continue
        try:
            if key not in listed:
                listed[key] = user_devices(account, place.user_id)
        except ServiceError as error:
            report.is_lost = isinstance(error, TransportError)
            report.problems.append(f"{place.device_identifier}: the list of {place.user_id} cannot be read: {error}")
            continue
        note_outcome(journal, place, listed[key])
    for account_name, name in left.products_in_doubt:
        account = accounts.get(account_name)
        if account is not None:
            _settle_product(journal, account, name, report)


def note_outcome(journal: Journal, place: Place, listed: list[Device]) -> bool:
    """Write down whether the list has the device; whether it has."""
    members = {
        "account": place.account,
        "user_id": place.user_id,
        "product_id": place.product_id,
        "device_identifier": place.device_identifier,
    }
    found = [device for device in listed if is_at(device, place) and device.device_id]
    for device in found:
        journal.add("registered", **members, device_id=device.device_id)
    if not found:
        journal.add("unregistered", **members)
    return bool(found)


def is_at(device: Device, place: Place) -> bool:
    """Whether a listed device is what a run made at this place.

    A plain server may leave product and name out; a name without the mark says that the device was there before.
    """
    is_marked = (device.device_name or MARK).startswith(MARK)
    is_same = device.device_identifier == place.device_identifier and device.product_id in {None, place.product_id}
    return is_same and is_marked


def user_devices(account: ProductAccount, user_id: str) -> list[Device]:
    """All devices of a user; none of one whom the service does not know.

    Raises:
        ServiceError: the list cannot be read.
    """
    try:
        return account.retrier.call(lambda: list(account.client.user_devices(user_id)))
    except NotFound:
        return []


def _settle_product(journal: Journal, account: ProductAccount, name: str, report: CleanupReport) -> None:
    try:
        products = account.retrier.call(lambda: list(account.client.products()))
    except ServiceError as error:
        report.problems.append(f"product {name!r} is in doubt, and the list of products cannot be read: {error}")
        return
    found = [product.product_id for product in products if product.name == name]
    for product_id in found:
        journal.add("created", account=account.name, name=name, product_id=product_id)
    if not found:
        journal.add("not_created", account=account.name, name=name)

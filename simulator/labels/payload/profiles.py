"""The text of a code out of product and identifier: the built-in profiles, and those that other packages bring.

A package brings a profile as an entry point of the group :data:`GROUP`: an object, or a class without arguments, that
is a :class:`LabelProfile`. One that cannot be loaded is an error where it is asked for, and never ends a command that
asks for another.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Protocol, runtime_checkable

from agent.errors import InvalidQr
from simulator.labels.errors import LabelError
from simulator.wire.qr import LabelText, parse_label
from simulator.wire.qr.keys import LabelSigner, signed_text
from simulator.wire.qr.label import COMPACT, JSON, LINK
from simulator.wire.qr.link_form import host_fault

GROUP: Final = "simulator.label_profiles"
PROFILES: Final = (JSON, LINK, COMPACT)
"""The built-in profiles; ``json`` is the default (docs/labels.md, "Payload")."""


@runtime_checkable
class LabelProfile(Protocol):
    """A way to write labels that another package brings.

    Both methods get and give the whole text of the code. What they raise as :class:`ValueError` (or
    :class:`~agent.errors.InvalidQr`) is shown as one line.
    """

    def write(self, label: LabelText, signer: LabelSigner | None) -> str:
        """The text of one code.

        Args:
            label: product and identifier; ``profile`` is the entry point's name, ``host`` what ``--link-host`` says.
            signer: the key of ``--sign-key-file``; ``signer.sign_bytes(...)`` signs whatever the profile wants signed.
        """
        ...

    def read(self, text: str) -> LabelText:
        """What such a text says; raises for any other."""
        ...


@dataclass(frozen=True, slots=True)
class Payload:
    """A profile with all that it needs to write labels.

    Attributes:
        name: of the profile.
        host: where links lead; empty for other profiles.
        signer: the product's key; None for unsigned labels.
        plug_in: the profile of another package; None for a built-in one.
    """

    name: str = JSON
    host: str = ""
    signer: LabelSigner | None = None
    plug_in: LabelProfile | None = field(default=None, compare=False)

    def text(self, product_id: str, device_identifier: str) -> str:
        """The text of one label's code.

        Args:
            product_id: the product that the device belongs to.
            device_identifier: unique among the devices of the product.

        Raises:
            LabelError: a label cannot carry these values.
        """
        label = LabelText(product_id, device_identifier, profile=self.name, host=self.host)
        try:
            if self.plug_in is None:
                return signed_text(label, self.signer)
            text = self.plug_in.write(label, self.signer)
        except (InvalidQr, ValueError) as problem:
            raise LabelError(
                f"no label for product {product_id!r}, identifier {device_identifier!r}: {problem}"
            ) from None
        except Exception as problem:
            raise LabelError(f"profile {self.name!r} failed: {_describe(problem)}; mend its package") from problem
        if not isinstance(text, str) or not text:
            raise LabelError(f"profile {self.name!r} gave no text for {device_identifier!r}; mend its package")
        return text

    @property
    def described(self) -> dict[str, Any]:
        """What distinguishes these labels from others, for a manifest. No secret."""
        described: dict[str, Any] = {"profile": self.name}
        if self.host:
            described["link_host"] = self.host
        if self.signer is not None:
            described["signed_by"] = self.signer.key.shown
        return described


def open_payload(name: str = JSON, *, host: str = "", signer: LabelSigner | None = None) -> Payload:
    """The profile of this name, ready to write.

    Args:
        name: a built-in profile, or one that an installed package brings.
        host: where links lead, such as ``onboard.example.com`` or ``127.0.0.1:8080``; made lower case.
        signer: the key that the product's ``label_key`` names.

    Raises:
        LabelError: no such profile, it cannot be loaded, or it lacks the host or has no use for one.
    """
    if name not in PROFILES:
        return Payload(name, host.lower(), signer, _load(name))
    if name != LINK and host:
        raise LabelError(f"--link-host is for the profile link; {name} has no host: leave it out, or take link")
    if name == LINK:
        fault = host_fault(host.lower()) if host else "the profile link needs the host that it leads to"
        if fault is not None:
            raise LabelError(f"{fault}: give --link-host, such as onboard.example.com")
    return Payload(name, host.lower(), signer)


def label_text(product_id: str, device_identifier: str, profile: str = JSON) -> str:
    """The text of one unsigned label's code, in a profile that needs nothing else.

    Raises:
        LabelError: no such profile, or a label cannot carry these values.
    """
    return open_payload(profile).text(product_id, device_identifier)


def read_text(text: str) -> LabelText:
    """What a scanned text says: by the strict parser or, when it is no label of ours, by an installed profile.

    Raises:
        InvalidQr: by the strict parser, when no other profile reads it, either.
    """
    try:
        return parse_label(text)
    except InvalidQr:
        for point in _installed():
            try:
                label = _load(point.name).read(text)
            except Exception:  # noqa: BLE001, S112 - not its text, or not in order: the strict parser's word counts
                continue
            if isinstance(label, LabelText):
                return replace(label, profile=point.name)
        raise


def _load(name: str) -> LabelProfile:
    point = next((point for point in _installed() if point.name == name), None)
    if point is None:
        there = ", ".join((*PROFILES, *(point.name for point in _installed())))
        raise LabelError(f"no payload profile {name!r}: there is {there}")
    package = f"{point.dist.name} {point.dist.version}" if point.dist else point.value
    try:
        loaded = point.load()
        profile = loaded() if isinstance(loaded, type) else loaded
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - whatever a package does when it is imported
        raise LabelError(
            f"profile {name!r} ({point.value} from {package}) could not be loaded: {_describe(problem)}; mend or "
            "uninstall that package"
        ) from None
    if not isinstance(profile, LabelProfile):
        raise LabelError(f"profile {name!r} ({point.value} from {package}) lacks write or read; mend that package")
    return profile


@cache
def _installed() -> tuple[EntryPoint, ...]:
    """The profiles of other packages by name; a built-in name is not theirs to take."""
    found = sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value))
    return tuple(point for point in found if point.name not in PROFILES)


def _describe(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {' '.join(str(problem).split())}".rstrip(": ")

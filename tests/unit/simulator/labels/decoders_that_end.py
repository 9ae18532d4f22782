"""Panels whose second decoder ends its process, as an assertion in a C library does, or never answers."""

from __future__ import annotations

import os
import threading

from simulator.labels.symbol.decoders import Decoder, GrayImage, Zxing


class Ending:
    """Ends the process at any picture."""

    name = "ending"

    def read(self, image: GrayImage) -> tuple[bytes, ...]:
        """Never returns."""
        del image
        os._exit(3)


class Hanging:
    """Never answers."""

    name = "hanging"

    def read(self, image: GrayImage) -> tuple[bytes, ...]:
        """Never returns."""
        del image
        threading.Event().wait()
        return ()


def make_panel() -> tuple[Decoder, ...]:
    """zxing, and one that ends the process."""
    return (Zxing(), Ending())


def make_hanging_panel() -> tuple[Decoder, ...]:
    """zxing, and one that never answers."""
    return (Zxing(), Hanging())


def make_zxing() -> tuple[Decoder, ...]:
    """zxing alone."""
    return (Zxing(),)


def make_hanging_extra() -> tuple[Decoder, ...]:
    """One that never answers, beside the panel."""
    return (Hanging(),)

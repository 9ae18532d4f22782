"""A panel whose second decoder ends its process, as an assertion in a C library does."""

from __future__ import annotations

import os

from simulator.labels.symbol.decoders import Decoder, GrayImage, Zxing


class Ending:
    """Ends the process at any picture."""

    name = "ending"

    def read(self, image: GrayImage) -> tuple[bytes, ...]:
        """Never returns."""
        del image
        os._exit(3)


def make_panel() -> tuple[Decoder, ...]:
    """zxing, and one that ends the process."""
    return (Zxing(), Ending())

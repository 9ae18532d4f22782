"""A program of its own that draws a PDF document's pages in grey: ``python -m simulator.labels.pdf_child FILE DPI``.

It writes each page to standard output as a line with width and height, then the pixels. A document comes from anywhere,
so what draws it has little time and memory, and takes nothing with it when it crashes. Exit code 1: a line on standard
error says why.
"""

from __future__ import annotations

import sys
from typing import Final

import numpy as np
import pypdfium2

from simulator.labels.pictures import PAGES_MAX, PIXELS_MAX

MEMORY_BYTES: Final = 2_000_000_000
CPU_S: Final = 120
_POINTS_PER_INCH: Final = 72


def main() -> None:
    """Draw the document that the command line names."""
    _limit_what_may_be_used()
    path, dpi = sys.argv[1], int(sys.argv[2])
    try:
        document = pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as problem:
        raise SystemExit(f"not a PDF document that can be read ({problem})") from None
    if not 1 <= len(document) <= PAGES_MAX:
        raise SystemExit(f"{len(document) or 'no'} pages; give a PDF of 1 to {PAGES_MAX}")
    sys.stdout.buffer.write(f"{len(document)}\n".encode())
    for number in range(len(document)):
        page = document[number]
        width, height = (max(1.0, side) for side in page.get_size())
        fitting = min(dpi, int((PIXELS_MAX / (width * height)) ** 0.5 * _POINTS_PER_INCH) - 1)
        if fitting < 1:
            raise SystemExit(f"page {number + 1} is too large to be drawn; scale it down or cut it")
        pixels = page.render(scale=fitting / _POINTS_PER_INCH, grayscale=True).to_numpy()
        sys.stdout.buffer.write(f"{pixels.shape[1]} {pixels.shape[0]}\n".encode())
        sys.stdout.buffer.write(np.ascontiguousarray(pixels).tobytes())
        page.close()
    sys.stdout.buffer.flush()


def _limit_what_may_be_used() -> None:
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()

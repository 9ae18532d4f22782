"""Pages: templates, styles and scripts of this package put together into one self-contained HTML file.

Nothing is loaded from anywhere: the page's own policy forbids it, and lets run only the scripts that are in this
package (by their SHA-256). Every value is escaped by Jinja2; data for plots travels as JSON that no parser of HTML
can leave (``tojson``).
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

_HERE: Final = "simulator.report_parts"
_TIMELESS: Final = "\u2013"
_MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class PageAssets:
    """Where a page takes its template, styles and scripts from; those of this package are the family's.

    Attributes:
        package: has ``templates/``, which may extend templates of this package.
        scripts, styles: packages and names in their ``static/``, in the order of the page.
    """

    package: str
    scripts: tuple[tuple[str, str], ...]
    styles: tuple[tuple[str, str], ...]


def render_page(template: str, *, wardrobe: PageAssets, **context: Any) -> str:
    """A whole page out of a template.

    Args:
        template: file name in the wardrobe's ``templates/``; it extends ``base.html.j2``.
        wardrobe: where everything is taken from.
        context: what the template names; a name that is missing raises :class:`jinja2.UndefinedError`.
    """
    scripts = [_static(*place) for place in wardrobe.scripts]
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts)
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {hashes}; base-uri 'none'"
    return (
        _environment(wardrobe.package)
        .get_template(template)
        .render(
            page_policy=policy,
            # The packages' own files, not anybody's input: the only places where nothing is escaped.
            page_scripts=[Markup(script) for script in scripts],  # noqa: S704
            page_styles=[Markup(_static(*place)) for place in wardrobe.styles],  # noqa: S704
            **context,
        )
    )


def duration_text(seconds: float | None) -> str:
    """``12 ms``, ``3.41 s``, ``1 min 12 s``; a dash for None."""
    if seconds is None:
        return _TIMELESS
    if abs(seconds) < 1:
        return f"{seconds * 1000:.0f} ms"
    if abs(seconds) < _MINUTE_S:
        return f"{seconds:.2f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def percent_of(at_s: float, whole_s: float) -> str:
    """Where ``at_s`` lies in ``whole_s``, as a CSS percentage between 0 and 100."""
    share = 0.0 if whole_s <= 0 else at_s / whole_s
    return f"{min(max(share, 0.0), 1.0) * 100:.3f}%"


@cache
def _environment(package: str) -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in dict.fromkeys((package, _HERE))]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["duration"] = duration_text
    environment.globals["percent_of"] = percent_of
    return environment


@cache
def _static(package: str, name: str) -> str:
    text = (files(package) / "static" / name).read_text(encoding="utf-8")
    if "</script" in text.lower() or "</style" in text.lower():
        raise ValueError(f"{package}: static/{name} would end its own element")
    return text


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")

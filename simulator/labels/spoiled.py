"""What a spreadsheet makes of identifiers, so that none of it becomes a label."""

from __future__ import annotations

import re
from typing import Final

_SPOILED: Final = (
    (r"#+|#[A-ZÀ-Ý]+(/[A-Z0]+)?[!?]?", "what a spreadsheet shows in place of a value"),
    (r"=.*", "a formula: export its value, from a column that is formatted as text"),
    (r"['\u2019].*", "guarded by an apostrophe, as spreadsheets mark text: take it away"),
    (
        r"(?i)[+-]?[0-9]([.,][0-9]+)?E\+[0-9]{2,3}|[+-]?[0-9][.,][0-9]+E-?[0-9]{1,3}",
        "a number in scientific notation, as spreadsheets shorten it: format the column as text and fill it anew",
    ),
    (
        r"[0-9]{5,}[.,]0{1,3}|[0-9]{1,3}(([,'\u2019][0-9]{3}){2,}|(\.[0-9]{3}){4,})([.,]0+)?",
        "a number that was formatted: format the column as text and fill it anew",
    ),
    (
        r"[0-9]{15}000+",
        "a number that a spreadsheet has rounded to 15 digits: format the column as text and fill it anew",
    ),
    (r"[0-9]{1,2}([./])[0-9]{1,2}\1(19|20)[0-9]{2}", "a date: format the column as text and fill it anew"),
    (r".*\ufffd.*", "a text that has lost a character: export the table again, as CSV UTF-8"),
)


def spoiled(value: str) -> str | None:
    """Why this is no identifier but what a spreadsheet made of one; None when it may be one."""
    return next((why for pattern, why in _SPOILED if re.fullmatch(pattern, value)), None)

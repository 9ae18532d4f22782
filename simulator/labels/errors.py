"""What can go wrong with labels, as types.

::

    AgentError
    └── LabelError              EXIT   labels cannot be made from what was given; the message names the fix
        ├── BadRows             EXIT   a table holds rows of which no label can be made; the message lists them all
        ├── LabelsExist         EXIT   the folder holds other labels; nothing was overwritten
        └── UnreadableLabel     EXIT   no candidate in the fixed order was read by every decoder
"""

from __future__ import annotations

from agent.errors import Advice, AgentError


class LabelError(AgentError):
    """Labels cannot be made from what was given: one line that names the fix."""

    advice = Advice.EXIT


class BadRows(LabelError):
    """A table holds rows of which no label can be made: one line, and one for each of them with its line number."""


class LabelsExist(LabelError):
    """The folder holds other labels already, and nothing was overwritten."""


class UnreadableLabel(LabelError):
    """Every candidate was drawn, and none was read back by the whole panel of decoders."""

"""``fleet-simulator onboard``: one module for each command, no logic in them."""

from __future__ import annotations

import click

from simulator.onboarding.cli.campaign import campaign_command
from simulator.onboarding.cli.cases import cases_command
from simulator.onboarding.cli.cleanup import cleanup_command
from simulator.onboarding.cli.labels import labels_command
from simulator.onboarding.cli.options import PREFIX

__all__ = ["onboard_group"]


# The prefix is what the program gives it anyway; said here, it also holds when the group is used on its own.
@click.group("onboard", context_settings={"auto_envvar_prefix": PREFIX})
def onboard_group() -> None:
    """Onboarding: labels one by one or by the thousand, and every order of events against any server."""


onboard_group.add_command(labels_command)
onboard_group.add_command(campaign_command)
onboard_group.add_command(cases_command)
onboard_group.add_command(cleanup_command)

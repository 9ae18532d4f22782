"""``fleet-simulator labels keygen``: a click command, no logic."""

from __future__ import annotations

import json
from pathlib import Path

import click

from simulator.terminal import CommandLineError, option
from simulator.whole_files import cannot_write
from simulator.wire.qr.keys import ED25519, KINDS, LabelSigner


@click.command("keygen")
@option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="File for the private key; made with mode 600, never overwritten.",
)
@option(
    "--kind",
    type=click.Choice(KINDS),
    default=ED25519,
    help="ed25519: the service gets a public key. hmac-sha256: smaller labels, and the service gets the secret.",
)
@option(
    "--json", "as_json", envvar="FLEET_SIMULATOR_LABELS_KEYGEN_JSON", is_flag=True, help="Print the result as JSON."
)
def keygen_command(*, out: Path, kind: str, as_json: bool) -> None:
    """Make a key that signs labels, and say what goes into the product's label_key.

    A secret is not printed: the label_key of an hmac-sha256 key is the content of the file.
    """
    signer = LabelSigner.make(kind)
    try:
        signer.write(out)
    except FileExistsError:
        raise CommandLineError(f"{out} exists and is left alone: give another --out") from None
    except OSError as problem:
        raise CommandLineError(cannot_write(out, problem, "another --out")) from None
    public = signer.key.shown if kind == ED25519 else None
    if as_json:
        click.echo(json.dumps({"key_file": str(out), "kind": kind, "shown_as": signer.key.shown, "label_key": public}))
        return
    click.echo(f"key file   {out}, for labels make --sign-key-file; keep it secret")
    if public:
        click.echo(f"label_key  {public}")
        return
    click.echo(f"label_key  the one line in {out}, a secret as well")
    click.echo(f"shown as   {signer.key.shown}")

"""``fleet-simulator labels corpus``: a click command, no logic."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click
from rich.text import Text

from agent.error_text import bounded
from agent.errors import AgentError, ConfigurationError, ErrorAnswer, TransportError
from simulator.credentials import takes_ca_file
from simulator.exit_codes import ExitCode
from simulator.labels.corpus.report import as_json as answers_as_json
from simulator.labels.corpus.report import as_table, sentences
from simulator.labels.corpus.run import CorpusOptions, CorpusRun, run_corpus
from simulator.labels.errors import LabelError
from simulator.terminal import CommandLineError, Console, Unreachable, option, show_progress

_LINES = 20


@click.command("corpus")
@option("--out", type=click.Path(path_type=Path), help="Folder for the payloads; made when missing.")
@option("--against", help="Send all of them to this server, such as http://127.0.0.1:8080, and compare.")
@option("--api-key", help="The server's public key, mk_...; with --against.")
@option("--secret-key-file", type=click.Path(path_type=Path), help="File with the secret key, msk_...; with --against.")
@takes_ca_file
@option("--product-id", help="A product without label_key.  [default: made up; with --against, made on the server]")
@option("--signed-product-id", help="A product whose label_key is that of --sign-key-file; the two go together.")
@option(
    "--sign-key-file",
    type=click.Path(path_type=Path),
    help="Its key (labels keygen).  [default: a key made from the seed, which everybody can make]",
)
@option("--link-host", default="onboard.example.com", help="Host of good links.")
@option("--seed", type=int, default=0, help="What looks random comes from it; equal options give equal files.")
@option(
    "--any-refusal", is_flag=True, help="Any 4xx passes where another 4xx is expected: for a server of other words."
)
@option("--timeout-s", type=click.FloatRange(min=0.1), default=10.0, help="Patience with one request.")
@option("--max-wait-s", type=click.FloatRange(min=0), default=120.0, help="Longest wait of one payload for the quota.")
@option("--replace", is_flag=True, help="Overwrite another corpus in the folder.")
@option(
    "--json", "as_json", envvar="FLEET_SIMULATOR_LABELS_CORPUS_JSON", is_flag=True, help="Print the result as JSON."
)
def corpus_command(*, as_json: bool, **options: object) -> None:
    """Payloads that a server must refuse, in over 30 classes, and neighbours that it must take.

    With --out they are written as files and pictures, with the expected answers in corpus.json. With --against each is
    sent to POST /onboarding/scan-qr, which registers nothing, and the answer compared.

    Exit code 0: every answer was as expected. 1: one was not. 2: usage, or the keys were refused. 5: the server cannot
    be reached.
    """
    try:
        with show_progress("payloads") as on_progress:
            run = run_corpus(CorpusOptions(**options), time.sleep, on_progress)  # type: ignore[arg-type]  # click checked them
    except ConfigurationError as problem:
        raise CommandLineError(problem.in_one_line) from None
    except LabelError as problem:
        raise CommandLineError(str(problem)) from None
    except TransportError as problem:
        raise Unreachable(str(problem)) from None
    except ErrorAnswer as problem:
        raise CommandLineError(f"{problem}; check the keys, or give --product-id and --signed-product-id") from None
    except AgentError as problem:
        raise Unreachable(str(problem)) from None
    if as_json:
        click.echo(json.dumps(_summary(run), ensure_ascii=False))
    else:
        _print(run)
    if not run.passed:
        click.get_current_context().exit(ExitCode.CHECK_FAILED)


def _summary(run: CorpusRun) -> dict[str, object]:
    written = run.written
    return {
        "folder": str(written.folder) if written else None,
        "payloads": len(run.entries),
        "invalid": run.invalid,
        "classes": run.classes,
        "pictures": written.pictures if written else None,
        "answers": None if run.asked is None else answers_as_json(run.asked, any_refusal=run.any_refusal),
    }


def _print(run: CorpusRun) -> None:
    console = Console(highlight=False, soft_wrap=True)
    valid = len(run.entries) - run.invalid
    console.print(Text(f"{run.invalid} payloads to be refused in {run.classes} classes, {valid} to be taken"))
    if run.written:
        console.print(Text(f"  folder     {run.written.folder}, {run.written.pictures} of them drawn, see README.md"))
    if run.asked is None:
        return
    console.print(as_table(run.asked))
    lines = sentences(run.asked, any_refusal=run.any_refusal)
    for line in lines[:_LINES]:
        click.echo(bounded(line), err=True)
    if len(lines) > _LINES:
        click.echo(bounded(f"and {len(lines) - _LINES} more; --json lists all"), err=True)
    summary = f"{len(lines)} answers were not as expected" if lines else "every answer was as expected"
    console.print(Text(summary, style="bold red" if lines else "bold green"))

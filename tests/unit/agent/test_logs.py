"""Log lines: one each, bounded, structured, and never a secret."""

from __future__ import annotations

import logging
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.app.logs import CHARACTERS, LINES, LineFormatter, LogRing
from agent.config.credentials import read_credentials
from agent.config.model import AuthConfig
from agent.runtime.engine import HandlerLog
from agent.wire.secret import MASK, never_show, redact

JOURNALD_LINE_MAX_BYTES = 48 * 1024
CANARY = "canary-4f7b20c9d1"
"""Looks like nothing in particular, so only knowing it helps."""


def record(message: str, *arguments: object, level: int = logging.INFO, error: BaseException | None = None):
    info = (type(error), error, error.__traceback__) if error else None
    made = logging.LogRecord("agent.runtime.engine", level, __file__, 1, message, arguments, info)
    made.created, made.msecs, made.threadName = 0.0, 5.0, "lane:ping"
    return made


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except type(error) as caught:
        return caught


FORMATTERS = [
    LineFormatter(),
    LineFormatter(under_journald=True),
]


def test_a_handlers_own_lines_name_handler_and_command_whatever_the_id_holds():
    seen: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record):
            seen.append(record)

    log = logging.Logger("agent.plugin")
    log.addHandler(Keep())
    HandlerLog(log, {"handler": "ping", "command": "50%d state=ok"}).info("opened %s", "the door")
    assert LineFormatter().format(seen[0]).endswith(" handler=ping command=50%d state=ok opened the door")


class TestShape:
    def test_a_line_of_text_has_its_time_and_under_journald_a_priority_on_each_line(self):
        error = ValueError("x\ntime=1970 level=error forged\n<0>forged")
        made = record("state=%s", "o\nk", level=logging.WARNING, error=error)
        first, *rest = LineFormatter().format(made).split("\n")
        assert first == "time=1970-01-01T00:00:00.005Z level=warning thread=lane:ping state=o k"
        assert rest
        assert all(line.startswith("  | ") for line in rest)
        first, *rest = LineFormatter(under_journald=True).format(made).split("\n")
        assert first == "<4>state=o k"
        assert all(line.startswith("<4>  | ") for line in rest)

    @given(text=st.text(max_size=400), argument=st.text(max_size=9000), error=st.none() | st.text(max_size=20_000))
    def test_whatever_a_record_holds_it_is_one_short_line_and_an_indented_traceback(self, text, argument, error):
        raising = None if error is None else ValueError(error)
        made = record(f"{text} state=%s", argument, level=logging.WARNING, error=raising)
        first, *trace = LineFormatter(under_journald=True).format(made).split("\n")
        assert first.startswith("<4>")
        assert all(line.startswith("<4>  | ") for line in trace)
        assert "".join((first, *trace)).isprintable()
        assert len(first.encode("utf-8", "backslashreplace")) < JOURNALD_LINE_MAX_BYTES


def test_the_ring_keeps_the_last_lines_cut_and_without_secrets():
    ring = LogRing()
    for number in range(LINES + 10):
        text = f"line={number} msk_canary " + "x" * 1000
        ring.handle(logging.LogRecord("agent.x", logging.INFO, __file__, 1, text, (), None))
    lines = ring.lines()
    assert len(lines) == LINES
    assert "line=10 " in lines[0]
    assert max(map(len, lines)) == CHARACTERS
    assert "canary" not in "".join(lines)


class TestEnormous:
    """What a handler raises or logs may be of any size."""

    @pytest.mark.parametrize("formatter", FORMATTERS)
    def test_a_message_and_an_error_of_50_megabytes_are_bounded_before_anything_works_on_them(self, formatter):
        made = record("it says %s", "x" * 50_000_000, error=raised(ValueError("y" * 50_000_000)))
        begun_s = time.process_time()
        text = formatter.format(made)
        took_s = time.process_time() - begun_s
        assert "it says" in text
        assert len(text.encode()) < JOURNALD_LINE_MAX_BYTES
        assert took_s < 10  # to look for secrets in all of it takes half a minute

    @pytest.mark.parametrize("secret_bytes", [200, 3000])
    @pytest.mark.parametrize("shift", range(0, 3000, 500))
    def test_where_it_is_cut_no_half_of_a_secret_is_left(self, secret_bytes, shift):
        secret = "msk_" + "s" * secret_bytes
        text = "-" * shift + " " + " ".join([secret] * (400_000 // secret_bytes))
        line = LineFormatter().format(record("%s", text))
        assert MASK in line
        assert "sss" not in line


class TestSecrets:
    @pytest.mark.parametrize(
        "text",
        [
            "msk_live.0123",
            "mk_live_0123456789",
            "dat_0123456789",
            "Authorization: Bearer abc.def-ghi",
            "authorization: bearer abc.def-ghi",
            "Authorization: Basic YTpi",
            "x-secret-key: whatever",
        ],
    )
    @pytest.mark.parametrize("formatter", FORMATTERS)
    def test_what_looks_like_one_is_masked_wherever_it_stands(self, formatter, text):
        secret = text.rpartition(" ")[2]
        for made in (
            record("before %s after", text),
            record(f"before {text} after"),
            record("failed", error=raised(RuntimeError(f"with {text}"))),
            record("error=%s", RuntimeError(text)),
        ):
            shown = formatter.format(made)
            assert secret not in shown
            assert MASK in shown

    @pytest.mark.parametrize("formatter", FORMATTERS)
    @given(
        before=st.text(max_size=5000), after=st.text(max_size=5000), in_error=st.booleans(), as_argument=st.booleans()
    )
    def test_a_credential_of_this_process_is_masked_whatever_surrounds_it(
        self, formatter, before, after, in_error, as_argument
    ):
        never_show(CANARY)
        text = f"{before}{CANARY}{after}"
        made = record("reason=%s" if as_argument else "reason", *([text] if as_argument else []))
        if in_error:
            error = raised(ValueError(text))
            made.exc_info = (ValueError, error, error.__traceback__)
        assert CANARY not in formatter.format(made)

    def test_reading_the_credentials_is_what_makes_them_known(self, tmp_path):
        path = tmp_path / "token"
        path.write_text("an-opaque-token-77f1")
        path.chmod(0o600)
        read_credentials(AuthConfig(mode="bearer", token_file=path), {})
        assert redact("x an-opaque-token-77f1 y") == f"x {MASK} y"

    def test_a_short_value_takes_no_words_out_of_sentences(self):
        never_show("key")
        assert redact("the key file") == "the key file"

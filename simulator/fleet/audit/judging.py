"""The judgement of an audit, in SQL: what the ledgers of a run say against what the service gave back.

Each statement adds rows to ``findings`` (stream, kind, device, key), one for each reading or command and kind.

Readings:

- *lost*: accepted, and not there.
- *doubled*: there more often than it may be, which is once; where the service keeps no idempotency keys once more for
  each time that it was sent again while the service may have had it already.
- *altered*: there with other values, or with another time than it carried.
- *unknown*: there, and never sent, or refused for good.
- *misdated*: carries a time that is not the one at which it was made, by more than :data:`OFF_S` on the service's
  clock; the times of arrival show how far the two clocks are apart.

Commands; one of another run of the same devices (``is_foreign``) is none of ours:

- *lost*: the service took it and does not list it; or it took the result and still lists it as open or as timed out; or
  it succeeded and never had an effect.
- *doubled*: its effect began more often than the handler's contract allows (``once``: once; any other: once for each
  time that the power went), or it is listed twice.
- *altered*: its payload is not what was ordered, or the service has a result that the device never gave.
- *unknown*: it came to a device, or is listed as made during the run, and was not ordered by it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any, Final

from agent.core.timekeeping import DATE_RESOLUTION_S
from agent.wire.models import RESULT_STATES
from agent.wire.server import COMMAND_RESULTS, IDEMPOTENCY_KEY, RECORDED_AT
from simulator.fleet.audit.ledger import AuditRules
from simulator.fleet.record import DeviceFinding

OFF_S: Final = 2 * DATE_RESOLUTION_S
"""A device that goes by the service's ``Date`` is never further off than this."""
_QUICKEST: Final = 0.05
"""The quickest readings, this share of all, took next to no time: they show how far two clocks are apart."""

STORED_SCHEMA: Final = """
DROP TABLE IF EXISTS stored;
DROP TABLE IF EXISTS listed;
DROP TABLE IF EXISTS results;
CREATE TABLE stored (device INTEGER, sequence INTEGER, digest INTEGER, recorded_ms INTEGER, received_ms INTEGER);
CREATE TABLE listed (device INTEGER, command_id TEXT, made_ms INTEGER, state TEXT, payload INTEGER, result INTEGER);
CREATE TABLE results (command_id TEXT, state TEXT, result INTEGER);
UPDATE devices SET readings_read = 0, commands_read = 0;
"""
_READINGS: Final = """
DROP TABLE IF EXISTS readings;
DROP TABLE IF EXISTS findings;
CREATE TABLE findings (stream TEXT, kind TEXT, device INTEGER, key TEXT);
CREATE TABLE readings (device INTEGER, sequence INTEGER, digest INTEGER, made_ms INTEGER, sent_ms INTEGER,
    accepted_ms INTEGER, recorded_ms INTEGER, sends INTEGER, open_sends INTEGER, refused INTEGER, in_doubt INTEGER,
    copies INTEGER DEFAULT 0, received_ms INTEGER, PRIMARY KEY (device, sequence)) WITHOUT ROWID;
INSERT INTO readings (device, sequence, digest, made_ms, sent_ms, accepted_ms, recorded_ms, sends, open_sends, refused,
    in_doubt)
SELECT device, sequence, max(digest), max(made_ms), min(CASE kind WHEN 'sent' THEN at_ms END),
    min(CASE kind WHEN 'accepted' THEN at_ms END), max(recorded_ms),
    sum(kind IN ('sent', 'resent', 'resent_after_refusal')), sum(kind = 'resent'), max(kind = 'refused'),
    max(kind = 'unanswered')
FROM (
    SELECT 'sent' AS kind, device, sequence, at_ms, made_ms, recorded_ms, digest FROM sendings
    UNION ALL SELECT kind, device, sequence, at_ms, NULL, NULL, NULL FROM answers)
GROUP BY device, sequence;
"""
_BY_TIME: Final = """
CREATE INDEX readings_by_time ON readings (device, recorded_ms);
UPDATE stored SET sequence = (
    SELECT min(sequence) FROM readings AS r WHERE r.device = stored.device AND r.recorded_ms = stored.recorded_ms);
"""
_COPIES: Final = """
CREATE INDEX stored_by_number ON stored (device, sequence);
UPDATE readings SET copies = c.copies, received_ms = c.received_ms
FROM (SELECT device, sequence, count(*) AS copies, min(received_ms) AS received_ms FROM stored GROUP BY 1, 2) AS c
WHERE readings.device = c.device AND readings.sequence = c.sequence;
"""
_READING_FINDINGS: Final = {
    "lost": """
        SELECT device, sequence FROM readings JOIN devices USING (device)
        WHERE readings_read AND accepted_ms IS NOT NULL AND NOT copies""",
    "doubled": "SELECT device, sequence FROM readings WHERE copies > CASE WHEN :replays THEN 1 ELSE open_sends + 1 END",
    "altered": """
        SELECT DISTINCT device, sequence FROM pairs WHERE is_altered OR (is_retimed AND NOT is_dated_by_service)""",
    "unknown": """
        SELECT device, sequence FROM readings WHERE refused AND accepted_ms IS NULL AND NOT in_doubt AND copies
        UNION ALL SELECT device, coalesce(s.sequence, 'recorded ' || s.recorded_ms) FROM stored AS s
        JOIN devices AS d USING (device) LEFT JOIN readings AS r USING (device, sequence)
        WHERE r.device IS NULL AND d.is_whole""",
    "misdated": """
        SELECT device, sequence FROM readings
        WHERE :dated_when_made AND abs(recorded_ms - made_ms - :apart_ms) > :most_off_ms""",
}
_PAIRS: Final = """
CREATE TEMP TABLE pairs AS
SELECT *, apart_ms > 1 AND NOT (:keeps_seconds AND apart_ms < 1000) AS is_retimed,
    NOT :keeps_times AND coalesce(arrived_ms <= 1, 0) AS is_dated_by_service
FROM (
    SELECT device, sequence, s.digest <> r.digest AS is_altered,
        coalesce(abs(s.recorded_ms - r.recorded_ms), 0) AS apart_ms, abs(s.recorded_ms - s.received_ms) AS arrived_ms
    FROM stored AS s JOIN readings AS r USING (device, sequence) WHERE r.sent_ms IS NOT NULL)
"""
_READING_SUMS: Final = """
SELECT (SELECT count(*) FROM stored) AS stored,
    (SELECT count(*) FROM pairs WHERE is_retimed AND is_dated_by_service) AS dated_by_service,
    (SELECT count(*) FROM stored AS s JOIN devices USING (device) LEFT JOIN readings AS r USING (device, sequence)
        WHERE r.device IS NULL AND NOT is_whole) AS unaccounted,
    coalesce(sum(sends > 0), 0) AS sent, count(accepted_ms) AS accepted,
    coalesce(sum(sends > 0 AND accepted_ms IS NULL AND NOT refused), 0) AS ambiguous,
    coalesce(sum(sends > 1), 0) AS resent, coalesce(sum(open_sends > 0), 0) AS resent_ambiguous,
    coalesce(sum(refused AND accepted_ms IS NULL), 0) AS refused,
    coalesce(max(abs(recorded_ms - made_ms - :apart_ms)), 0) AS off_ms,
    coalesce(sum(copies > 1 AND copies <= CASE WHEN :replays THEN 1 ELSE open_sends + 1 END), 0) AS doubled_by_resend
FROM readings
"""
_COMMANDS: Final = """
DROP TABLE IF EXISTS commands;
CREATE TABLE commands AS
SELECT device, command_id, min(CASE kind WHEN 'ordered' THEN at_ms END) AS ordered_ms,
    min(CASE kind WHEN 'received' THEN at_ms END) AS received_ms,
    max(kind = 'received' AND detail IS 'older') AS is_older, max(CASE kind WHEN 'started' THEN detail END) AS contract,
    sum(kind = 'started') AS effects, count(DISTINCT CASE kind WHEN 'started' THEN attempt END) AS attempts,
    coalesce(group_concat(CASE kind WHEN 'finished' THEN detail END), '') AS outcomes,
    max(kind = 'reported') AS reported, sum(kind = 'listed') AS listed,
    sum(kind = 'listed' AND detail IS NULL) AS stateless, min(CASE kind WHEN 'listed' THEN detail END) AS state,
    coalesce(max(CASE kind WHEN 'listed' THEN at_ms END), 0) AS made_ms,
    min(CASE WHEN kind IN ('ordered', 'received', 'listed') THEN digest END) AS least_payload,
    max(CASE WHEN kind IN ('ordered', 'received', 'listed') THEN digest END) AS most_payload,
    max(CASE kind WHEN 'finished' THEN digest END) AS result, max(listed_result) AS listed_result,
    NULL AS kept_state, 0 AS is_foreign
FROM (
    SELECT *, NULL AS listed_result FROM command_events WHERE kind <> 'order_unanswered'
    UNION ALL SELECT 'listed', device, command_id, made_ms, state, 0, payload, result FROM listed)
GROUP BY device, command_id;
"""
_KEPT_RESULTS: Final = """
UPDATE commands SET kept_state = r.state, listed_result = coalesce(r.result, listed_result)
FROM (SELECT command_id, min(state) AS state, min(result) AS result FROM results GROUP BY command_id) AS r
WHERE commands.command_id = r.command_id
"""
_FOREIGN: Final = """
UPDATE commands SET is_foreign = CASE WHEN made_ms = 0
    THEN received_ms IS NULL OR (is_older AND :ages_hold)
    ELSE made_ms < :begin_ms OR (received_ms IS NULL AND made_ms > :ended_ms) END
WHERE ordered_ms IS NULL
"""
_COMMAND_FINDINGS: Final = {
    "lost": """
        SELECT device, command_id FROM commands JOIN devices USING (device)
        WHERE commands_read AND (ordered_ms IS NOT NULL OR NOT :ordered_here) AND (
            NOT listed OR (:results_listed AND reported AND instr(:result_states, ',' || state || ',') = 0)
            OR (instr(outcomes, 'succeeded') AND NOT effects))
        UNION SELECT device, command_id FROM commands WHERE :results_read AND reported AND kept_state IS NULL""",
    "doubled": """
        SELECT device, command_id FROM commands
        WHERE listed > 1 OR effects > CASE contract WHEN 'once' THEN 1 ELSE max(1, attempts) END""",
    "altered": """
        SELECT device, command_id FROM commands JOIN devices USING (device)
        WHERE least_payload <> most_payload OR (reported AND result IS NOT listed_result AND :results_read)
            OR (reported AND result <> listed_result) OR NOT instr(outcomes, kept_state) OR (
            commands_read AND :all_whole AND (ordered_ms IS NOT NULL OR received_ms IS NOT NULL)
            AND instr(:result_states, ',' || state || ',') AND NOT instr(outcomes, state))""",
    # Orders without an answer, or listed under another id, may be among these: so many of each device are allowed.
    "unknown": """
        SELECT device, command_id FROM (
            SELECT device, command_id, row_number() OVER (PARTITION BY device ORDER BY command_id) AS place
            FROM commands WHERE ordered_ms IS NULL AND NOT is_foreign)
        LEFT JOIN allowances USING (device) WHERE :ordered_here AND :all_whole AND place > coalesce(allowed, 0)""",
}
_ALLOWANCES: Final = """
CREATE TEMP TABLE allowances AS SELECT device, sum(allowed) AS allowed FROM (
    SELECT device, count(*) AS allowed FROM command_events WHERE kind = 'order_unanswered' GROUP BY device
    UNION ALL SELECT device, count(*) FROM commands
    WHERE NOT :lists_read AND ordered_ms IS NOT NULL AND received_ms IS NULL GROUP BY device)
GROUP BY device
"""
_COMMAND_SUMS: Final = """
SELECT (SELECT count(*) FROM command_events WHERE kind = 'order_unanswered') AS ambiguous,
    coalesce(sum(ordered_ms IS NOT NULL), 0) AS accepted,
    coalesce(sum(listed * NOT is_foreign), 0) AS stored, coalesce(sum(effects * NOT is_foreign), 0) AS effects,
    coalesce(sum(max(0, effects - 1) * NOT is_foreign), 0) AS again,
    coalesce(sum(ordered_ms IS NOT NULL AND received_ms IS NULL), 0) AS undelivered,
    coalesce(sum(is_foreign), 0) AS foreign_ones,
    coalesce(sum(:results_listed AND reported AND stateless > 0), 0) AS stateless,
    coalesce(sum(reported AND NOT :results_listed AND NOT :results_read), 0) AS results_unread,
    (SELECT coalesce(sum(max(0, allowed - coalesce(n, 0))), 0) * NOT :lists_read FROM allowances LEFT JOIN (
        SELECT device, count(*) AS n FROM commands WHERE ordered_ms IS NULL AND NOT is_foreign GROUP BY device)
        USING (device)) AS unlisted
FROM commands
"""

Sums = Mapping[str, int]


def judge_readings(database: sqlite3.Connection, rules: AuditRules) -> Sums:
    """Find what is wrong with readings.

    Args:
        database: with ledgers, ``stored`` and ``devices``, which says what was read back to its end.
        rules: what to go by.

    Returns:
        The sums: of each kind, and those of the members of :class:`~simulator.fleet.record.StreamAudit`.
    """
    database.executescript(_READINGS)
    if not rules.numbered:
        database.executescript(_BY_TIME)
    database.executescript(_COPIES)
    parameters: dict[str, Any] = {
        "replays": IDEMPOTENCY_KEY in rules.offers,
        "keeps_times": RECORDED_AT in rules.offers,
        "keeps_seconds": _value(database, "SELECT NOT EXISTS (SELECT 1 FROM stored WHERE recorded_ms % 1000 <> 0)"),
        "dated_when_made": rules.dated_when_made,
        "apart_ms": _clocks_apart_ms(database),
        "most_off_ms": OFF_S * 1000,
    }
    database.execute(_PAIRS, parameters)
    kinds = _find(database, "readings", _READING_FINDINGS, parameters)
    return {**_sums(database, _READING_SUMS, parameters), **kinds}


def judge_commands(database: sqlite3.Connection, rules: AuditRules, *, results_read: bool, ended_ms: int) -> Sums:
    """Find what is wrong with commands; after :func:`judge_readings`.

    Args:
        database: see there.
        rules: what to go by.
        results_read: the results were read from a table of runtime data.
        ended_ms: the last thing that this run did; what the service made later is another run's.
    """
    database.executescript(_COMMANDS)
    off_ms = "SELECT coalesce(max(made_ms - ordered_ms), 0) FROM commands WHERE ordered_ms IS NOT NULL AND made_ms <> 0"
    ages_hold = """
        SELECT count(*) > 0 AND NOT sum(is_older) FROM commands
        WHERE ordered_ms IS NOT NULL AND received_ms IS NOT NULL"""
    parameters: dict[str, Any] = {
        "results_listed": COMMAND_RESULTS in rules.offers,  # a plain service takes them elsewhere
        "results_read": results_read,
        "lists_read": rules.lists_are_whole,
        "ended_ms": ended_ms,
        # How far the service's clock is off is seen in what was ordered: it was made just before its answer came.
        "begin_ms": _value(database, off_ms),
        # Commands that the run ordered came to devices, and none with a time before the run's begin: a clock that is
        # slow, or one of whole seconds, would give them such.
        "ages_hold": _value(database, ages_hold) or 0,
        "ordered_here": _value(
            database, "SELECT EXISTS (SELECT 1 FROM command_events WHERE kind IN ('ordered', 'order_unanswered'))"
        ),
        "all_whole": _value(database, "SELECT NOT EXISTS (SELECT 1 FROM devices WHERE NOT is_whole)"),
        "result_states": f",{','.join(map(str, RESULT_STATES))},",
    }
    database.execute(_KEPT_RESULTS)
    database.execute(_FOREIGN, parameters)
    database.execute(_ALLOWANCES, parameters)
    kinds = _find(database, "commands", _COMMAND_FINDINGS, parameters)
    sums = _sums(database, _COMMAND_SUMS, parameters)
    return {**sums, **kinds, "sent": sums["accepted"] + sums["ambiguous"]}


def worst_findings(database: sqlite3.Connection, most: int, keys: int = 5) -> Iterator[DeviceFinding]:
    """The findings by device and kind, with a few keys: the gravest kinds first, then the devices with the most."""
    worst = """
        SELECT device, coalesce(device_id, ''), coalesce(name, 'device ' || device), kind, count(*) AS count
        FROM findings LEFT JOIN devices USING (device) GROUP BY device, kind
        ORDER BY instr('lost, doubled, altered, unknown, misdated', kind), count DESC, device LIMIT ?
    """
    for device, device_id, name, kind, count in database.execute(worst, (most,)).fetchall():
        some = "SELECT key FROM findings WHERE device = ? AND kind = ? LIMIT ?"
        found = tuple(str(key) for (key,) in database.execute(some, (device, kind, keys)))
        yield DeviceFinding(device_id=device_id, name=name, kind=kind, count=count, keys=found)


def last_ms(database: sqlite3.Connection) -> int:
    """When the last event of the ledgers was, in milliseconds since the run's begin."""
    tables = "SELECT at_ms FROM sendings UNION ALL SELECT at_ms FROM answers UNION ALL SELECT at_ms FROM command_events"
    (last,) = database.execute(f"SELECT coalesce(max(at_ms), 0) FROM ({tables})").fetchone()  # noqa: S608 - our own
    return int(last)


def _clocks_apart_ms(database: sqlite3.Connection) -> int | None:
    """The service's clock minus the run's: nothing is received before it is sent, and some at once. None if unknown."""
    there = "FROM readings WHERE sent_ms IS NOT NULL AND received_ms IS NOT NULL"
    count = _value(database, f"SELECT count(*) {there}")
    quickest = f"SELECT received_ms - sent_ms AS apart {there} ORDER BY apart LIMIT 1 OFFSET ?"
    return _value(database, quickest, int(count * _QUICKEST)) if count else None


def _find(
    database: sqlite3.Connection, stream: str, statements: Mapping[str, str], parameters: Mapping[str, Any]
) -> dict[str, int]:
    counts = {}
    for kind, statement in statements.items():
        insert = f"INSERT INTO findings SELECT '{stream}', '{kind}', * FROM ({statement})"  # noqa: S608 - all our own
        counts[kind] = database.execute(insert, parameters).rowcount
    return counts


def _sums(database: sqlite3.Connection, statement: str, parameters: Mapping[str, Any]) -> dict[str, int]:
    found = database.execute(statement, parameters)
    return dict(zip((column[0] for column in found.description), found.fetchone(), strict=True))


def _value(database: sqlite3.Connection, statement: str, *values: Any) -> Any:
    row = database.execute(statement, values).fetchone()
    return None if row is None else row[0]

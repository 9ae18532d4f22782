"""Payloads that a server must refuse, some that it must take, and what the service of the specification answers."""

from simulator.labels.corpus.case import Case, Expected, Setting
from simulator.labels.corpus.collection import CLASSES, collect
from simulator.labels.corpus.folder import write_corpus
from simulator.labels.corpus.sending import AnsweredEntry, ScanOutcome, send_all

__all__ = [
    "CLASSES",
    "AnsweredEntry",
    "Case",
    "Expected",
    "ScanOutcome",
    "Setting",
    "collect",
    "send_all",
    "write_corpus",
]

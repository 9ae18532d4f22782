"""Product definitions out of YAML files, as in ``configs/products``."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Final

import yaml
from pydantic import ValidationError

from agent.errors import ConfigurationError
from agent.wire.base import describe_faults
from simulator.wire.models import NewProduct

BUILT_IN: Final = "climate-node"
"""Whose commands the virtual devices understand."""


def load_product(name: str = BUILT_IN, folder: Path = Path()) -> NewProduct:
    """A product as ``POST /products`` takes it.

    Args:
        name: :data:`BUILT_IN`, or the YAML file.
        folder: a relative path starts here.

    Raises:
        ConfigurationError: the file cannot be read or is no product; the text names the file and each fault.
    """
    source = files("simulator.fleet") / "climate-node.yaml" if name == BUILT_IN else folder / name
    try:
        return NewProduct.model_validate_json(_as_json(source.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise ConfigurationError([describe_faults(error)], str(source)) from None
    except OSError as error:
        raise ConfigurationError([f"cannot be read: {error.strerror}"], str(source)) from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError([f"is not YAML: {' '.join(str(error).split())}"], str(source)) from None


@lru_cache(maxsize=8)  # a scenario's check, its workers and its audit read the same few texts
def _as_json(text: str) -> str:
    """YAML as the JSON text that would be sent: the strict models read that, and lists become what they ask for."""
    document = yaml.safe_load(text)
    try:
        return json.dumps(document)
    except (TypeError, ValueError) as error:
        raise yaml.YAMLError(f"a value has no JSON form: {error}") from None

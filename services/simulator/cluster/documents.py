"""YAML as Kubernetes reads it: another way to write JSON."""

from typing import Any

import orjson
import yaml

__all__ = ["parse_yaml"]


def parse_yaml(raw: bytes) -> list[Any]:
    """Return the documents of a YAML text as plain JSON values.

    `yaml.YAMLError` if it is none, `ValueError` if it says what JSON cannot.
    """
    documents = yaml.load_all(raw, yaml.CSafeLoader)
    try:
        # YAML knows dates and keys of any type; JSON has strings for both.
        return [orjson.loads(orjson.dumps(d, option=orjson.OPT_NON_STR_KEYS)) for d in documents]
    except orjson.JSONEncodeError as error:
        raise ValueError(str(error)) from error

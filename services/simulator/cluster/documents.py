"""YAML as Kubernetes reads it: every document is a JSON value."""

from typing import Any

import orjson
import yaml


def parse_yaml(raw: bytes) -> list[Any]:
    """Return the documents of a YAML text as plain JSON values.

    Raises `yaml.YAMLError` for invalid YAML and `ValueError` for values that JSON does not have.
    """
    documents = yaml.load_all(raw, yaml.CSafeLoader)
    try:
        # YAML knows dates and keys of any type; JSON has strings for both.
        return [orjson.loads(orjson.dumps(d, option=orjson.OPT_NON_STR_KEYS)) for d in documents]
    except orjson.JSONEncodeError as error:
        raise ValueError(str(error)) from error

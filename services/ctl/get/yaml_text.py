"""YAML that Go programs read with the same meaning: Go's YAML takes more words for numbers and booleans."""

import re
from typing import Any, Final

import yaml

_GO_ONLY: Final = (
    ("bool", r"y|Y|n|N", "yYnN"),
    ("int", r"[-+]?0o[0-7_]+", "-+0"),
    ("float", r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
)
"""Type, form and first characters of values that Go reads as that type, though Python reads text. Digits
with one `e` among them are what a short commit looks like."""


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Quotes what either of the two would take for something else than text."""


for _type, _form, _first in _GO_ONLY:
    _Dumper.add_implicit_resolver(
        f"tag:yaml.org,2002:{_type}", re.compile(f"(?:{_form})$"), list(_first)
    )


def yaml_text(value: Any, *, sort_keys: bool = False) -> str:
    """`value` as one document."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=sort_keys, allow_unicode=True, default_flow_style=False
    )
    return text

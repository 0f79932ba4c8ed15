"""docs/reference/messages.md has a row for each message, with what its receivers check."""

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Final

from shared.contracts import messages
from shared.contracts.messages.base import Message

PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "messages.md"
ROW: Final = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def sent(kind: type[Message] = Message) -> set[str]:
    """Names of all messages that have a type of their own."""
    subclasses = [each for each in kind.__subclasses__() if each.__module__.startswith("shared.")]
    found = {kind.__name__} if hasattr(kind, "type") and not subclasses else set()
    return found.union(*(sent(each) for each in subclasses))


def rows() -> dict[str, str]:
    found = {}
    for names, _sender, checks in ROW.findall(PAGE.read_text()):
        for name in re.findall(r"\w+", names):
            assert name not in found, f"{name} has two rows"
            found[name] = checks.strip()
    return found


def test_each_message_has_a_row_that_says_what_is_checked() -> None:
    for module in pkgutil.iter_modules(messages.__path__):
        importlib.import_module(f"{messages.__name__}.{module.name}")
    documented = rows()
    assert documented.keys() == sent()
    assert all(documented.values())

"""The name of a stream is spelled once: this finds where it stands in quotes."""

import re
from collections.abc import Iterator
from typing import Final

from shared.contracts.subjects import Stream
from tests.architecture.sources import House

HOME: Final = "shared/contracts/subjects.py"

OTHER_MEANINGS: Final = {
    ("services/whatif/report.py", "WORKLOADS"): "the title of a column",
}
"""Files and words in them that look like the name of a stream, with what they mean."""

_NAME: Final = re.compile(rf"(?:\S+\.)?({'|'.join(Stream)})(?:_NOW)?(?:\.\S+)?")
"""A log or a view, alone or as a token of a subject of JetStream's API. In a sentence it is a word."""

QUOTED_STREAMS: Final = {
    "a service spells a log": 'bus.watch("ADMISSIONS")',
    "a service spells a view": 'VIEW: Final = "ADMISSIONS_NOW"',
    "a service spells a log as a key": 'FILTERS = {"ADMISSIONS": ()}',
    "a service spells a log in a subject": 'reader.call("STREAM.INFO.ADMISSIONS")',
    "a service spells a view in an f-string": 'f"{API}.STREAM.INFO.ADMISSIONS_NOW"',
    "a service compares with a log": "match log:\n    case 'ADMISSIONS': ...",
}
"""Planted breaches of the rule."""


def streams_are_named_by_contracts(house: House) -> Iterator[str]:
    """A stream is a member of `Stream`: a name in quotes that is wrong reads nothing, and nobody says so."""
    for file in house.code:
        for node in file.strings() if file.path != HOME else ():
            found = _NAME.fullmatch(str(node.value))
            if found is not None and (file.path, node.value) not in OTHER_MEANINGS:
                yield f"{file.path}:{node.lineno}: {node.value!r}: write Stream.{found[1]} of {HOME}"


def needless_exceptions(house: House) -> list[tuple[str, str]]:
    """The entries of `OTHER_MEANINGS` that no file needs."""
    spelled = {(file.path, str(node.value)) for file in house.code for node in file.strings()}
    return [each for each in OTHER_MEANINGS if each not in spelled]

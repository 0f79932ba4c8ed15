"""A scenario plays something in a namespace of its own; its rows judge the history of it afterwards."""

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from tests.controllers.place import Place

Judge = TypeVar("Judge", bound=Callable[..., Iterator[str]])


def row(judge: Judge) -> Judge:
    """Mark a method as a row: its name is a sentence, and what it yields is wrong."""
    judge.__dict__["is_row"] = True
    return judge


class Scenario:
    """One play. Its rows are read only, and may come in any order."""

    variant: ClassVar[str] = ""
    """What tells it from another of the same rows."""

    def __init__(self, at: Place) -> None:
        self.at = at

    async def play(self) -> None:
        """Do it. Raises TimeoutError if something that has to happen does not."""
        raise NotImplementedError

    @classmethod
    def rows(cls) -> dict[str, str]:
        """Sentence to the name of its method."""
        behind = f" ({cls.variant})" if cls.variant else ""
        return {
            name.replace("_", " ") + behind: name
            for each in reversed(cls.__mro__)
            for name, method in vars(each).items()
            if getattr(method, "is_row", False)
        }

    @classmethod
    def namespace(cls) -> str:
        """Its name in words that an API server takes."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one row."""

    row: str
    problems: tuple[str, ...]


async def judged(scenario: type[Scenario], at: Place) -> list[Verdict]:
    """Play a scenario, and judge its rows. A play that does not come to its end holds nowhere."""
    played = scenario(at)
    try:
        await at.furnish()
        await played.play()
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the rows did not hold
        why = f"{type(error).__name__}: {error}"
        return [Verdict(sentence, (why,)) for sentence in scenario.rows()]
    return [
        Verdict(sentence, tuple(getattr(played, method)()))
        for sentence, method in scenario.rows().items()
    ]

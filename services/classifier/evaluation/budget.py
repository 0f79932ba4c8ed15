"""What one review may hold: bytes, values, items of one list, levels. Pure, and linear in the body.

CEL's `map` and `filter` copy their result for every item: an object with a list of 9,000 items costs 81
times as much as one with 1,000. So the size of a list is limited, not only the size of the object.
"""

from dataclasses import dataclass
from typing import Any, Final

from services.classifier.refusal import RefusedError, WebhookRule

_TOKENS_PER_VALUE: Final = 4
"""A script has commas and brackets too, so the count before parsing allows more than `values_max`."""

_TOKENS: Final = (b",", b"[", b"{")

PATH_CHARS_MAX: Final = 200
"""A key may have any length. A message shows where it is with this much of the path."""


_CONTAINERS: Final = (dict, list)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Measure:
    """The size of a JSON value."""

    root: Any
    values: int
    """Lists, objects, and what they hold."""

    longest: int
    """Items of the longest list or object."""

    levels: int
    longest_container: Any
    deepest_container: Any

    @property
    def longest_path(self) -> str:
        """Path of the longest list or object."""
        return _path(self.root, self.longest_container)

    @property
    def deepest_path(self) -> str:
        """Path of a list or object at the deepest level."""
        return _path(self.root, self.deepest_container)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits for one review. A real PipelineRun with 50 tasks has about 3,000 values."""

    values_max: int = 250_000
    """For every object. One of 1.5 MiB, etcd's limit, that holds more is not made by hand."""

    expression_values_max: int = 20_000
    """For an object on which expressions are evaluated."""

    items_max: int = 1_000
    """For one list or object on which expressions are evaluated."""

    levels_max: int = 100

    def check_body(self, body: bytes) -> RefusedError | None:
        """Return the refusal of a body, before anything is made of it."""
        tokens = tokens_of(body)
        most = self.values_max * _TOKENS_PER_VALUE
        if tokens <= most:
            return None
        return RefusedError(WebhookRule.TOKENS, count=tokens, most=most, now=self.values_max)

    def check_object(self, found: Measure) -> RefusedError | None:
        """Return the refusal of an object of any kind."""
        if found.levels > self.levels_max:
            return RefusedError(
                WebhookRule.LEVELS,
                path=found.deepest_path,
                count=found.levels,
                most=self.levels_max,
            )
        return _too_many(found, self.values_max, "SLUICE_WEBHOOK_VALUES")

    def check_expressions(self, found: Measure) -> RefusedError | None:
        """Return the refusal of an object on which expressions are to be evaluated."""
        if found.longest > self.items_max:
            return RefusedError(
                WebhookRule.ITEMS,
                path=found.longest_path,
                count=found.longest,
                most=self.items_max,
            )
        return _too_many(found, self.expression_values_max, "SLUICE_WEBHOOK_EXPRESSION_VALUES")


def tokens_of(body: bytes) -> int:
    """Return the commas and opening brackets of a body: no less than its values, and quickly counted."""
    return sum(map(body.count, _TOKENS))


def _too_many(found: Measure, most: int, setting: str) -> RefusedError | None:
    if found.values <= most:
        return None
    return RefusedError(WebhookRule.VALUES, count=found.values, most=most, setting=setting)


def measure(value: Any) -> Measure:
    """Return the size of a JSON value. Needs no recursion, and looks at each container once.

    Paths are computed only if they are read: they would cost ten times as much.
    """
    values, levels = 1, 0
    longest: Any = ()
    deepest: Any = value
    level = [value] if isinstance(value, _CONTAINERS) else []
    while level:
        levels += 1
        deepest = level[0]
        below: list[Any] = []
        for container in level:
            values += len(container)
            if len(container) > len(longest):
                longest = container
            items = container.values() if isinstance(container, dict) else container
            for each in items:
                if isinstance(each, _CONTAINERS):
                    below.append(each)  # noqa: PERF401 - A list for each container costs three times as much.
        level = below
    return Measure(
        root=value, values=values, longest=len(longest), levels=max(levels, 1),
        longest_container=longest, deepest_container=deepest,
    )  # fmt: skip


def _path(root: Any, wanted: Any) -> str:
    """Spell the path of a container, found by identity."""
    level: list[tuple[Any, _Path]] = [(root, None)]
    while level:
        below: list[tuple[Any, _Path]] = []
        for container, path in level:
            if container is wanted:
                return _spelled(path)
            keyed: Any = container.items() if isinstance(container, dict) else enumerate(container)
            below += [(each, (path, key)) for key, each in keyed if isinstance(each, _CONTAINERS)]
        level = below
    return _spelled(None)


_Path = tuple[Any, Any] | None
"""Parent and key."""


def _spelled(path: _Path) -> str:
    steps: list[str] = []
    while path is not None:
        path, key = path
        steps.append(f"[{key}]" if isinstance(key, int) else f".{key}")
    text = "".join(reversed(steps)).removeprefix(".") or "object"
    return text if len(text) <= PATH_CHARS_MAX else f"{text[:PATH_CHARS_MAX]}…"

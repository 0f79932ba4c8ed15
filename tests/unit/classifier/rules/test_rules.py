"""The configuration: what is read, what is refused, and that the last good one stays in force."""

import asyncio
from pathlib import Path

import pytest

from services.classifier.cel import CelEngine
from services.classifier.rules import Rules, RulesError, parse_rules
from services.classifier.rules.holder import RulesHolder, follow_rules
from shared.testing.waiting import eventually

GOOD = "queueName: q\ncel:\n  expressions:\n  - priority('a')\n"
ENGINE = CelEngine()


def in_force(holder: RulesHolder) -> Rules:
    assert holder.current is not None
    return holder.current


def test_configuration_is_parsed() -> None:
    rules = parse_rules(GOOD + "multiKueueOverride: true\n", ENGINE)

    assert (rules.queue_name, rules.multi_kueue_override, len(rules.programs)) == ("q", True, 1)
    assert rules.ignored == ()


def test_only_queue_name_is_required() -> None:
    rules = parse_rules("queueName: q\ncel:\n", ENGINE)

    assert (rules.multi_kueue_override, len(rules.programs)) == (False, 0)


def test_unknown_fields_are_ignored_and_listed() -> None:
    rules = parse_rules("queueName: q\nqueue: x\ncel: {expressions: [], limit: 3}\n", ENGINE)

    assert rules.ignored == ("queue", "cel.limit")


REFUSED = {
    "nothing": ("", "queueName: is not set"),
    "no queue": ("multiKueueOverride: true", "queueName: is not set"),
    "an empty queue": ("queueName: ''", "queueName: is not set"),
    "a queue that is a number": ("queueName: 7", "queueName: must be a string, got 7; quote it"),
    "a queue that YAML takes for false": (
        "queueName: off",
        "must be a string, got False; quote it",
    ),
    "a queue that is no label value": (
        "queueName: a b",
        "queueName: 'a b' cannot be a label value",
    ),
    "a list": ("- a", "configuration: must be an object"),
    "no YAML": ("queueName: [", "configuration: not YAML"),
    "an object of Python": (
        "queueName: !!python/object/apply:os.system [ls]",
        "configuration: not YAML: could not determine a constructor",
    ),
    "an override that is text": (
        "queueName: q\nmultiKueueOverride: 'yes'",
        "multiKueueOverride: must be true or false, got 'yes'",
    ),
    "cel as a list": ("queueName: q\ncel: []", "cel: must be an object, got '[]'"),
    "expressions as text": (
        "queueName: q\ncel: {expressions: priority('a')}",
        "cel.expressions: must be a list, got str",
    ),
    "an expression that is no text": (
        "queueName: q\ncel: {expressions: [{a: b}]}",
        "cel.expressions[0]: must be a string",
    ),
    "an empty expression": (
        "queueName: q\ncel: {expressions: ['']}",
        "cel.expressions[0] (''): the expression is empty",
    ),
    "an expression that does not compile": (
        "queueName: q\ncel: {expressions: [priority('a'), nofn('x')]}",
        "cel.expressions[1] (\"nofn('x')\"): line 1, column 5: undeclared reference to 'nofn'",
    ),
    "more than a ConfigMap holds": ("#" * (1024 * 1024 + 1), "larger than 1048576 bytes"),
}


@pytest.mark.parametrize(("text", "problem"), REFUSED.values(), ids=REFUSED.keys())
def test_invalid_configuration_is_refused_and_last_good_stays(text: str, problem: str) -> None:
    holder = RulesHolder(ENGINE)
    assert holder.offer(GOOD)
    good = in_force(holder)

    assert not holder.offer(text)

    assert problem in (holder.error or "")
    assert holder.current is good
    with pytest.raises(RulesError):
        parse_rules(text, ENGINE)


def test_good_configuration_replaces_the_last_and_clears_error() -> None:
    holder = RulesHolder(ENGINE)
    holder.offer("queueName: ''")

    assert holder.offer(GOOD)
    assert holder.offer(GOOD.replace(": q", ": other"))

    assert in_force(holder).queue_name == "other"
    assert holder.error is None


def test_last_good_configuration_survives_restart(tmp_path: Path) -> None:
    kept = tmp_path / "last-good.yaml"
    RulesHolder(ENGINE, last_good=kept).offer(GOOD)
    RulesHolder(ENGINE, last_good=kept).offer("queueName: ''")

    restarted = RulesHolder(ENGINE, last_good=kept)

    assert restarted.current is None
    assert restarted.restore()
    assert in_force(restarted).queue_name == "q"


def test_nothing_is_restored_without_kept_file(tmp_path: Path) -> None:
    assert not RulesHolder(ENGINE).restore()
    assert not RulesHolder(ENGINE, last_good=tmp_path / "nothing").restore()


def test_rules_that_cannot_be_written_to_disk_are_in_force(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    holder = RulesHolder(ENGINE, last_good=tmp_path / "file" / "last-good.yaml")

    assert holder.offer(GOOD)

    assert in_force(holder).queue_name == "q"


def test_unreadable_file_changes_nothing(tmp_path: Path) -> None:
    holder = RulesHolder(ENGINE)
    holder.offer(GOOD)

    assert not holder.offer_file(tmp_path / "nothing.yaml")

    assert "nothing.yaml" in (holder.error or "")
    assert in_force(holder).queue_name == "q"


async def test_file_is_loaded_when_it_appears_and_changes(tmp_path: Path) -> None:
    path, holder = tmp_path / "config.yaml", RulesHolder(ENGINE)
    following = asyncio.create_task(follow_rules(holder, path, every_seconds=0.01))

    async def until(queue: str, *, error: bool) -> None:
        def holds() -> bool:
            current = holder.current
            found = current is not None and current.queue_name == queue
            return found and (holder.error is not None) == error

        await eventually(holds)

    await asyncio.sleep(0.03)
    assert holder.current is None
    path.write_text(GOOD)
    await until("q", error=False)
    path.write_text("queueName: [")
    await until("q", error=True)
    # As a mounted ConfigMap changes: another file takes the name.
    (tmp_path / "new").write_text(GOOD.replace(": q", ": r"))
    (tmp_path / "new").replace(path)
    await until("r", error=False)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)

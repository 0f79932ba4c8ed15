"""The house keeps its rules, and each rule finds a breach that is planted."""

from collections.abc import Sequence
from typing import Final

import pytest

from tests.architecture.exceptions import WORDS_OF_OTHERS
from tests.architecture.judged_times import JUDGED_TIMES
from tests.architecture.patterns import PATTERNS_TWICE
from tests.architecture.rules import RULES, words_in_two_services
from tests.architecture.sentences import PARSED
from tests.architecture.sources import House, Source, house
from tests.architecture.state_sets import STATE_SETS
from tests.architecture.stream_names import QUOTED_STREAMS, needless_exceptions
from tests.architecture.stream_readers import HAND_LOOPS, needless_readers
from tests.architecture.unused_definitions import UNUSED
from tests.architecture.uses import EXPORTED, unused_constants, unused_methods
from tests.architecture.wrapped_calls import WRAPPED


@pytest.mark.parametrize("name", RULES)
def test_house_keeps_rule(name: str) -> None:
    breaches = list(RULES[name](house()))

    assert not breaches, "\n" + "\n".join(breaches)


def file(path: str, text: str = "") -> Source:
    return Source(path, text)


THREE_LINES: Final = '"""What goes on.\n\nWhat enters.\nWhat leaves."""\n'

PLANTED: dict[str, tuple[str, Sequence[Source], str]] = {
    "two modules import each other": (
        "imports_have_no_circles",
        [
            file("services/quota/a.py", "from services.quota.b import x"),
            file("services/quota/b.py", "from services.quota import a"),
        ],
        "circle in services.quota",
    ),
    "two modules import each other, one of them by name": (
        "imports_have_no_circles",
        [
            file("services/ctl/a.py", 'import_module("services.ctl.b")'),
            file("services/ctl/b.py", "from services.ctl import a"),
        ],
        "circle in services.ctl",
    ),
    "two modules import each other, one of them by a constant": (
        "imports_have_no_circles",
        [
            file("services/ctl/a.py", '_LATE: Final = "services.ctl.b"\nf(import_module, _LATE)'),
            file("services/ctl/b.py", "from services.ctl import a"),
        ],
        "circle in services.ctl",
    ),
    "a service starts a program that imports it": (
        "imports_have_no_circles",
        [
            file("services/whatif/a.py", 'run([sys.executable, "-m", "services.ctl.b", *more])'),
            file("services/ctl/b.py", "from services.whatif import a"),
        ],
        "circle in services:",
    ),
    "a service starts a program by a constant": (
        "imports_have_no_circles",
        [
            file("services/whatif/a.py", '_CTL = "services.ctl.b"\nrun(*("-m", _CTL))'),
            file("services/ctl/b.py", "from services.whatif import a"),
        ],
        "circle in services:",
    ),
    "two packages import each other through different modules": (
        "imports_have_no_circles",
        [
            file("services/a/one.py", "from services.b.one import x"),
            file("services/a/two.py"),
            file("services/b/one.py"),
            file("services/b/two.py", "from services.a.two import x"),
        ],
        "circle in services",
    ),
    "a folder holds thirteen modules": (
        "folders_hold_at_most_twelve_modules",
        [file(f"services/quota/m{number}.py") for number in range(13)],
        "services/quota holds 13 modules",
    ),
    "a package docstring has one line": (
        "packages_say_what_goes_on_inside",
        [file("services/quota/__init__.py", '"""Decides."""')],
        "services/quota/__init__.py",
    ),
    "a test file has more than 400 lines": (
        "test_files_are_short",
        [file("tests/unit/quota/test_a.py", "x = 1\n" * 401)],
        "tests/unit/quota/test_a.py: 401 lines",
    ),
    "a function of a test has more than 70 lines": (
        "test_functions_are_short",
        [file("tests/unit/test_a.py", "def test_a():\n" + "    x = 1\n" * 70)],
        "tests/unit/test_a.py:1: test_a has 71 lines",
    ),
    "a replaced module name comes back": (
        "names_are_plain",
        [file("services/patcher/cluster/mirror.py")],
        "call the module cache",
    ),
    "a replaced class name comes back, hidden": (
        "names_are_plain",
        [file("services/provisioner/x.py", "class _Usher: ...")],
        "call class _Usher HostAccessController",
    ),
    "a metaphor of the bus is a class of it again": (
        "no_room_has_a_metaphor",
        [file("shared/bus/x.py", "class _Gathering: ...")],
        "shared/bus/x.py:1: _Gathering: gathering: say io_batching",
    ),
    "a metaphor of the provisioner is part of a module of the patcher": (
        "no_room_has_a_metaphor",
        [file("services/patcher/jobs/group_upkeep.py")],
        "group_upkeep: upkeep: say maintenance, or cleanup",
    ),
    "a metaphor is part of a class name": (
        "no_room_has_a_metaphor",
        [file("services/patcher/x.py", "class GroupUpkeep: ...")],
        "services/patcher/x.py:1: GroupUpkeep: upkeep",
    ),
    "a metaphor of quota is a class of the console": (
        "no_room_has_a_metaphor",
        [file("services/console/x.py", "class _Past: ...")],
        "_Past: past: say history",
    ),
    "a metaphor is a module of tests": (
        "no_room_has_a_metaphor",
        [file("tests/unit/bus/test_gathering.py")],
        "test_gathering: gathering",
    ),
    "a metaphor is a type": (
        "no_room_has_a_metaphor",
        [file("services/provisioner/x.py", "Seat = tuple[str, int]")],
        "services/provisioner/x.py:1: Seat: seat: say slot",
    ),
    "a metaphor is a class of several": (
        "no_room_has_a_metaphor",
        [file("services/console/x.py", "class FairSeats: ...")],
        "FairSeats: seats: say slot",
    ),
    "an argument says that something was told": (
        "variables_say_what_they_hold",
        [file("services/quota/a.py", "def f(told): ...")],
        "services/quota/a.py:1: told: say what it holds",
    ),
    "a variable says that something was said": (
        "variables_say_what_they_hold",
        [file("services/quota/a.py", "x, said = y")],
        "services/quota/a.py:1: said: say what it holds",
    ),
    "a variable of quota has its earlier name": (
        "variables_say_what_they_hold",
        [file("services/quota/a.py", "for seat in x: ...")],
        "services/quota/a.py:1: seat: say slot",
    ),
    "a private method has an earlier name": (
        "variables_say_what_they_hold",
        [file("services/quota/a.py", "class C:\n    def _wish(self): ...")],
        "services/quota/a.py:2: _wish: say requested_spec_change",
    ),
    "an attribute has an earlier name": (
        "variables_say_what_they_hold",
        [file("services/quota/a.py", "self.past = x")],
        "services/quota/a.py:1: past: say history",
    ),
    "a field that stays in its message is written in another file": (
        "variables_say_what_they_hold",
        [file("services/quota/a.py", "seats: list[str] = []")],
        "services/quota/a.py:1: seats: say slots",
    ),
    "a class of the dispatcher has its earlier name": (
        "names_are_plain",
        [file("services/dispatcher/x.py", "class Standing: ...")],
        "call class Standing CopyPhase",
    ),
    "a method is called take": (
        "names_are_plain",
        [file("services/quota/x.py", "class Store:\n    def take(self): ...")],
        "say what `take` does",
    ),
    "a service has two classes of one name": (
        "a_service_uses_a_class_name_once",
        [
            file("services/quota/a.py", "class Term: ..."),
            file("services/quota/b.py", "class _Term: ..."),
        ],
        "class _Term is also in services/quota/a.py:1",
    ),
    "a module lists its own public names": (
        "public_names_are_spelled_without_underscore",
        [file("services/quota/a.py", 'from x import y\n__all__ = ["f"]\ndef f(): ...')],
        "services/quota/a.py:2: delete __all__",
    ),
    "nobody says why a limit has its value": (
        "limits_say_why_that_value",
        [file("services/quota/a.py", 'A_MAX: Final = 1\n"""Why."""\n\nB_MAX: Final = 2\n\nC = 3')],
        "services/quota/a.py:4: B_MAX: say why",
    ),
    "nobody says why the limits of the last block have their values": (
        "limits_say_why_that_value",
        [file("services/quota/a.py", "A_MAX: Final = 1\nB_MAX: Final = 2")],
        "services/quota/a.py:1: A_MAX: say why",
    ),
    "a service spells out a label": (
        "labels_and_subjects_live_in_contracts",
        [file("services/quota/a.py", 'LABEL = "kueue.x-k8s.io/queue-name"')],
        "'kueue.x-k8s.io/queue-name' belongs to shared/contracts",
    ),
    "a service spells out a subject in an f-string": (
        "labels_and_subjects_live_in_contracts",
        [file("services/quota/a.py", 'def f(c): return f"sluice.admission.{c}.>"')],
        "'sluice.admission.' belongs to shared/contracts",
    ),
    "a service puts a subject together": (
        "labels_and_subjects_live_in_contracts",
        [file("services/quota/a.py", 'def f(c): return f"{subjects.ROOT}.admission.{c}.>"')],
        "services/quota/a.py:1: a subject is put together",
    ),
    "two services define one string": (
        "no_two_services_define_the_same_string",
        [
            file("services/quota/a.py", 'REFUSED = "ReleaseRefused"'),
            file("services/patcher/b.py", 'WHY: Final = "ReleaseRefused"'),
        ],
        "'ReleaseRefused' is defined in services/quota/a.py:1 and in services/patcher/b.py:1",
    ),
    "a service spells out a label of another project": (
        "labels_and_subjects_live_in_contracts",
        [file("services/quota/a.py", 'def f(x): return x["build.appstudio.redhat.com/task-type"]')],
        "'build.appstudio.redhat.com/task-type' belongs to shared/contracts",
    ),
    "a service spells out the domain of labels": (
        "labels_and_subjects_live_in_contracts",
        [file("services/quota/a.py", 'def f(x): return f"build.appstudio.redhat.com/{x}"')],
        "'build.appstudio.redhat.com/' belongs to shared/contracts",
    ),
    "two services spell one reason, in a call and in a set": (
        "no_two_services_spell_the_same_word",
        [
            file("services/quota/a.py", 'def f(evict):\n    evict("PodsReadyTimeout")'),
            file("services/patcher/b.py", 'BACKOFF = frozenset({"PodsReadyTimeout"})'),
        ],
        "'PodsReadyTimeout' is spelled in services/quota/a.py:2 and in services/patcher/b.py:1",
    ),
    "two services spell one key, in a dict and in a comparison": (
        "no_two_services_spell_the_same_word",
        [
            file("services/provisioner/a.py", 'def f(): return {"otp-ca": ""}'),
            file("services/patcher/b.py", 'def f(key): return key == "otp-ca"'),
        ],
        "'otp-ca' is spelled in",
    ),
    "two services spell one attribute": (
        "no_two_services_spell_the_same_word",
        [
            file("services/tracer/a.py", 'def f(x): x["k8s.cluster.name"] = ""'),
            file("services/patcher/b.py", 'def f(x): x["k8s.cluster.name"] = ""'),
        ],
        "'k8s.cluster.name' is spelled in",
    ),
    "a service spells what contracts spell": (
        "no_two_services_spell_the_same_word",
        [
            file("services/quota/a.py", 'def f(x): return x == "ReleaseRefused"'),
            file("shared/contracts/b.py", 'REFUSED = "ReleaseRefused"'),
        ],
        "'ReleaseRefused' is spelled in",
    ),
    "a service spells a reason of one plain word": (
        "no_two_services_spell_the_same_word",
        [
            file("services/console/a.py", 'def f(x): return x.reason == "Misconfigured"'),
            file("shared/contracts/reasons.py", 'MISCONFIGURED: Final = "Misconfigured"'),
        ],
        "'Misconfigured' is spelled in",
    ),
    "the simulator spells a label of a service": (
        "no_two_services_spell_the_same_word",
        [
            file(
                "services/simulator/behaviour/a.py", 'def f(x): return x["app.kubernetes.io/name"]'
            ),
            file("services/ctl/b.py", 'def f(x): return x["app.kubernetes.io/name"]'),
        ],
        "'app.kubernetes.io/name' is spelled in",
    ),
    "a service derives one message from another": (
        "contracts_are_built_complete",
        [file("services/quota/a.py", 'x = y.model_copy(update={"term": 1})')],
        "model_copy(update=…) belongs to shared/contracts",
    ),
    "a service handles a body that cannot be read": (
        "the_bus_handles_bodies_that_cannot_be_read",
        [file("services/quota/a.py", "try: ...\nexcept (ValueError, UndecodableError): ...")],
        "services/quota/a.py:2",
    ),
    "a command reads a message by itself": (
        "the_bus_handles_bodies_that_cannot_be_read",
        [
            file("shared/contracts/messages/a.py", 'class A(Message):\n    stream: ClassVar = "A"'),
            file(
                "services/ctl/a.py",
                "try:\n    x = A.model_validate(y)\nexcept ValidationError: ...",
            ),
        ],
        "services/ctl/a.py:1: A is read by Seen.read",
    ),
    "a service asks for a lease": (
        "the_bus_keeps_leases",
        [file("services/quota/a.py", 'lease = await self._bus.lease("quota")')],
        "services/quota/a.py:1",
    ),
    "a comment points out of the repository": (
        "the_repository_stands_by_itself",
        [file("services/quota/a.py", "x = 1  # research/kueue.md 2.4")],
        "services/quota/a.py:1",
    ),
    "a log event is a code": (
        "log_events_are_sentences",
        [file("services/quota/a.py", 'log.warning("bus_refused", subject=subject)')],
        "services/quota/a.py:1: 'bus_refused': say in a sentence",
    ),
    "a log event of a bound logger is one word, in one of two cases": (
        "log_events_are_sentences",
        [file("services/quota/a.py", 'self._log.info("a check is ready" if x else "check")')],
        "services/quota/a.py:1: 'check': say in a sentence",
    ),
    "a log event comes from somewhere else": (
        "log_events_are_sentences",
        [file("services/quota/a.py", "log.error(event, error=str(error))")],
        "services/quota/a.py:1: write the event",
    ),
}

PLANTED |= {
    case: ("no_test_judges_time", [file("tests/unit/test_a.py", text)], "tests/unit/test_a.py:")
    for case, text in JUDGED_TIMES.items()
}
PLANTED |= PARSED | PATTERNS_TWICE | STATE_SETS | UNUSED | WRAPPED

PLANTED |= {
    case: ("streams_are_named_by_contracts", [file("shared/bus/a.py", text)], "Stream.ADMISSIONS")
    for case, text in QUOTED_STREAMS.items()
}
PLANTED |= {
    case: ("streams_are_read_by_the_bus", [file("services/quota/a.py", text)], "quota/a.py:1")
    for case, text in HAND_LOOPS.items()
}


@pytest.mark.parametrize("case", PLANTED)
def test_planted_breach_is_found(case: str) -> None:
    rule, files, expected = PLANTED[case]

    breaches = list(RULES[rule](House(files)))

    assert any(expected in breach for breach in breaches), breaches


def test_every_rule_has_a_planted_breach() -> None:
    assert {rule for rule, _, _ in PLANTED.values()} == set(RULES)


def test_every_exception_is_needed() -> None:
    """What a rule does not find needs none, and an exception would hide the next one."""
    assert set().union(*WORDS_OF_OTHERS.values()) <= words_in_two_services(house()).keys()
    unused = {key for key, _ in (*unused_constants(house()), *unused_methods(house()))}
    assert {key for key in EXPORTED if ":" in key} <= unused
    assert not needless_exceptions(house())
    assert not needless_readers(house())


def test_word_of_literal_type_may_be_spelled_twice() -> None:
    files = [
        file("shared/contracts/a.py", 'Search = Literal["TryNextFlavor"]'),
        file("services/quota/b.py", 'def f(x: Search): return x == "TryNextFlavor"'),
    ]

    assert words_in_two_services(House(files)) == {}


def test_used_and_plain_code_has_no_breach() -> None:
    files = [
        file("services/__init__.py", THREE_LINES),
        file("services/quota/__init__.py", THREE_LINES),
        file("services/quota/a.py", "from services.quota.b import used\nclass Term:\n    x = used"),
        file("services/quota/b.py", "def used(): ...\n"),
        file(
            "services/patcher/c.py",
            "from services.quota.a import Term\nfrom services.quota.d import Above",
        ),
        file("services/quota/d.py", "class Above:\n    def run(self): self._wake()\nAbove().run()"),
        file(
            "services/quota/e.py",
            "class _Below(Above):\n    def _wake(self): ...\n_x = _Below\n_x()",
        ),
    ]

    assert [list(rule(House(files))) for rule in RULES.values()] == [[] for _ in RULES]

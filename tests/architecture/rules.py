"""The rules of the house. Each looks at all source files and yields its breaches as sentences."""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from tests.architecture.clocks import no_test_judges_time
from tests.architecture.exceptions import COMPARED_BY_TESTS, LABELS_OF_OTHERS, WORDS_OF_OTHERS
from tests.architecture.imports import imports_have_no_circles
from tests.architecture.limits import limits_say_why_that_value
from tests.architecture.names import (
    BANNED_CLASSES,
    BANNED_MODULES,
    METAPHORS,
    METAPHORS_OF_CODE,
    REPLACED_NAMES,
    SHOWN,
    SHOWN_FIELDS,
    VAGUE_VARIABLES,
)
from tests.architecture.patterns import patterns_have_one_home
from tests.architecture.sentences import no_service_parses_a_sentence_of_another
from tests.architecture.sources import House, Source, is_bench
from tests.architecture.state_sets import sets_of_states_have_one_home
from tests.architecture.stream_names import streams_are_named_by_contracts
from tests.architecture.stream_readers import streams_are_read_by_the_bus
from tests.architecture.uses import (
    private_definitions_are_read,
    public_constants_are_used,
    public_definitions_are_used,
    public_methods_are_used,
)

Rule = Callable[[House], Iterator[str]]

MODULES_MAX: Final = 12
DOCSTRING_LINES_MIN: Final = 3
TEST_LINES_MAX: Final = 400
FUNCTION_LINES_MAX: Final = 70
_FACT: Final = re.compile(r"(?=.{4})(?=.*[^a-z])[A-Za-z/].*")
"""A string that two parties must agree on. A plain lower-case word ("pods") is just a word."""

CONTRACTS: Final = "shared/contracts"


# --- folders and names ---


def folders_hold_at_most_twelve_modules(house: House) -> Iterator[str]:
    """A folder is a concept: one that holds more is two concepts."""
    folders: dict[str, int] = defaultdict(int)
    for file in house.code:
        if file.parts[-1] not in {"__init__.py", "__main__.py"}:
            folders[file.folder] += 1
    for folder, number in folders.items():
        if number > MODULES_MAX:
            yield f"{folder} holds {number} modules: make folders by concept"


def packages_say_what_goes_on_inside(house: House) -> Iterator[str]:
    """Three lines or more: what enters, what happens, what leaves."""
    for file in house.code:
        if not file.is_package:
            continue
        lines = (ast.get_docstring(file.tree) or "").splitlines()
        if sum(bool(line.strip()) for line in lines) < DOCSTRING_LINES_MIN:
            yield f"{file.path}: say in three lines what enters, what happens, what leaves"


def test_files_are_short(house: House) -> Iterator[str]:
    """A file below `tests` that is longer tests two subjects."""
    for file in house.tests:
        if (lines := len(file.text.splitlines())) > TEST_LINES_MAX:
            yield f"{file.path}: {lines} lines: a test file has at most {TEST_LINES_MAX}, split it"


def test_functions_are_short(house: House) -> Iterator[str]:
    """What holds for functions of services holds for those below `tests`."""
    for file in house.tests:
        for node in file.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    yield f"{file.path}:{node.lineno}: {node.name} has {lines} lines: split it"


def names_are_plain(house: House) -> Iterator[str]:
    """The metaphors that were replaced stay away."""
    for file in house.code:
        name = file.parts[-1].removesuffix(".py")
        if (plain := BANNED_MODULES.get((file.service, name))) is not None:
            yield f"{file.path}: call the module {plain}"
        for node in file.classes():
            if (plain := BANNED_CLASSES.get((file.service, node.name.lstrip("_")))) is not None:
                yield f"{file.path}:{node.lineno}: call class {node.name} {plain}"
        for function in file.nodes:
            if (
                isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
                and function.name == "take"
            ):
                yield f"{file.path}:{function.lineno}: say what `take` does (observe, apply, ingest, …)"


def no_room_has_a_metaphor(house: House) -> Iterator[str]:
    """What a word says nothing about here, it says nothing about in another room, nor in a longer name."""
    for files, metaphors in (
        (house.code, METAPHORS | METAPHORS_OF_CODE),
        (house.tests, METAPHORS),
    ):
        for file in files:
            for where, name in _names_of_concepts(file):
                for word in () if name in SHOWN else _words(name):
                    plain = metaphors.get(word) or metaphors.get(word.removesuffix("s"))
                    if plain is not None:
                        yield f"{where}: {name}: {word}: say {plain}"


def variables_say_what_they_hold(house: House) -> Iterator[str]:
    """`told` may be a message, a flag or a time: the name is that of what is told."""
    for file in house.code:
        for node in file.nodes:
            name = _name_given(node)
            if name in VAGUE_VARIABLES and isinstance(node, ast.Name | ast.arg):
                yield f"{_at(file, node)}: {name}: say what it holds"
            plain = REPLACED_NAMES.get(name.lstrip("_"))
            if plain is not None and (file.path, name) not in SHOWN_FIELDS:
                yield f"{_at(file, node)}: {name}: say {plain}"


def _name_given(node: ast.AST) -> str:
    """The name that a variable, argument, attribute or function gets here; "": it names nothing."""
    match node:
        case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            return name
        case _:
            return ""


def _names_of_concepts(file: Source) -> Iterator[tuple[str, str]]:
    """The module, its classes and its type aliases, each with where it is."""
    yield file.path, file.parts[-1].removesuffix(".py")
    for node in file.classes():
        yield f"{file.path}:{node.lineno}", node.name
    for assigned in file.tree.body:
        if isinstance(assigned, ast.Assign | ast.AnnAssign):
            for target in getattr(assigned, "targets", None) or [assigned.target]:  # type: ignore[union-attr]
                if isinstance(target, ast.Name) and re.fullmatch(r"_?[A-Z]\w*[a-z]\w*", target.id):
                    yield f"{file.path}:{assigned.lineno}", target.id


def _words(name: str) -> list[str]:
    """The words of a name in snake_case or CamelCase, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def a_service_uses_a_class_name_once(house: House) -> Iterator[str]:
    """Two classes of one name in one service are two things under one word."""
    seen: dict[tuple[str, str], str] = {}
    for file in house.code:
        if not file.inside("services"):
            continue
        for node in file.classes():
            key = (file.service, node.name.lstrip("_"))
            first = seen.setdefault(key, f"{file.path}:{node.lineno}")
            if first != f"{file.path}:{node.lineno}":
                yield f"{file.path}:{node.lineno}: class {node.name} is also in {first}"


def public_names_are_spelled_without_underscore(house: House) -> Iterator[str]:
    """`__all__` stands only where a module hands on names that it imports."""
    for file in house.code:
        imported = {
            alias.asname or alias.name
            for node in file.tree.body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        for node in file.tree.body:
            if not isinstance(node, ast.Assign) or "__all__" not in map(ast.unparse, node.targets):
                continue
            if imported.isdisjoint(ast.literal_eval(node.value)):
                yield f"{file.path}:{node.lineno}: delete __all__: it hands on no name of another module"


# --- one home for each fact ---

_WIRE_NAMES: Final = re.compile(
    r"^(?:kueue\.x-k8s\.io|(?:\w+\.)?sluicegate\.dev|tekton\.dev)/[a-z]"  # labels, annotations
    r"|^sluice\.(?:[a-z]+|\*)\."  # subjects
)
_DOMAIN_NAME: Final = re.compile(
    r"(?!(?:[a-z]+\.)?example(?:\.com)?/)(?:[a-z0-9-]+\.)+[a-z]{2,}/[\w./-]*"
)
"""A label, annotation or finalizer of anybody. `example.com` is nobody's."""

_VERSIONS: Final = re.compile(r"/v\d+((alpha|beta)\d+)?$")
"""`apiVersion` of a manifest is no label."""


def labels_and_subjects_live_in_contracts(house: House) -> Iterator[str]:
    """A label, annotation or subject is spelled once, in `shared/contracts`, also one of other projects."""
    for file in house.code:
        if file.inside(CONTRACTS, "shared/integrations/documents"):
            continue
        of_others = file.inside(*LABELS_OF_OTHERS) or is_bench(file)
        for node in file.strings():
            text = str(node.value)
            if _VERSIONS.search(text) or " " in text:
                continue
            if _WIRE_NAMES.match(text) or (not of_others and _DOMAIN_NAME.fullmatch(text)):
                yield f"{file.path}:{node.lineno}: {text!r} belongs to {CONTRACTS}"
        if file.inside("services"):
            for each in file.nodes:
                if _names_root_of_subjects(each):
                    yield f"{_at(file, each)}: a subject is put together in {CONTRACTS}/subjects.py"


def _names_root_of_subjects(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="subjects"), attr="ROOT"):
            return True
        case ast.ImportFrom(module=str(module)):
            names = {alias.name for alias in node.names}
            return module.endswith("subjects") and "ROOT" in names
        case _:
            return False


def _at(file: Source, node: ast.AST) -> str:
    return f"{file.path}:{getattr(node, 'lineno', 0)}"


def no_two_services_define_the_same_string(house: House) -> Iterator[str]:
    """A constant that two services spell out breaks production when one of them is edited."""
    homes: dict[str, dict[str, str]] = defaultdict(dict)
    for file in house.code:
        if file.inside(*COMPARED_BY_TESTS):
            continue
        for node in file.tree.body:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                text = node.value.value
                if _FACT.fullmatch(text):
                    homes[text].setdefault(file.service, f"{file.path}:{node.lineno}")
    for text, places in sorted(homes.items()):
        if len(places) > 1:
            yield f"{text!r} is defined in {' and in '.join(places.values())}"


_WORD: Final = re.compile(
    r"[A-Z][a-z0-9]+(?:[A-Z][A-Za-z0-9]*)+(?<=.{8})"  # a reason: ReleaseRefused
    r"|[a-z0-9]+(?:[-.][a-z0-9]+)+(?<=.{6})"  # a key, name or attribute: host-config, k8s.cluster.name
    rf"|{_DOMAIN_NAME.pattern}"
)
"""What two parties agree on, wherever it stands. Plain words, and all that has blanks, are prose."""

_FIELD: Final = re.compile(r"(?:metadata|spec|status)\.")
_APART: Final = ("services/simulator", "services/reference")
"""The simulator plays and judges from outside: it shares labels, and no other words. The reference explains
words of all: tests compare its tables with the code."""


REASONS: Final = f"{CONTRACTS}/reasons.py"
"""Its constants are words that two parties agree on, whatever they look like."""


def no_two_services_spell_the_same_word(house: House) -> Iterator[str]:
    """A reason, key, name or label that two parties know is a name in code that both import."""
    excepted = set().union(*WORDS_OF_OTHERS.values())
    for text, places in sorted(words_in_two_services(house).items()):
        if text not in excepted:
            yield f"{text!r} is spelled in {' and in '.join(places)}"


def words_in_two_services(house: House) -> dict[str, list[str]]:
    """Each word that a service and another one, or shared code, spell: a place in each of them.

    Free are values of `Literal` types, because the type checker finds a wrong one, and names of kinds.
    """
    free = {word for file in house.code for word in _literal_types(file)}
    free |= {
        str(node.value)
        for file in house.code
        if file.inside(f"{CONTRACTS}/kube/kinds.py")
        for node in file.strings()
        if str(node.value).isalpha()
    }
    reasons = {
        str(node.value.value)
        for file in house.code
        if file.inside(REASONS)
        for node in file.tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Constant)
    }
    homes: dict[str, dict[str, str]] = defaultdict(dict)
    for file in house.code:
        if file.inside(*COMPARED_BY_TESTS) or is_bench(file):
            continue
        for node in file.strings():
            text = str(node.value)
            if file.inside(*_APART) and not _DOMAIN_NAME.fullmatch(text):
                continue
            if text in reasons or (
                _WORD.fullmatch(text) and not _FIELD.match(text) and not _VERSIONS.search(text)
            ):
                homes[text].setdefault(file.service, f"{file.path}:{node.lineno}")
    return {
        text: [*places.values()]
        for text, places in homes.items()
        if text not in free
        and len(places) > 1
        and any(room.startswith("services/") for room in places)
    }


def _literal_types(file: Source) -> Iterator[str]:
    """The values of the `Literal[…]` types in a file."""
    for node in file.nodes:
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal":
            for value in ast.walk(node.slice):
                if isinstance(value, ast.Constant):
                    yield str(value.value)


def contracts_are_built_complete(house: House) -> Iterator[str]:
    """A message is built once; only `shared/contracts` may derive one from another."""
    yield from _only_in(house.code, _copies_with_changes, CONTRACTS, what="model_copy(update=…)")


def _copies_with_changes(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "model_copy"
        and any(keyword.arg in {"update", None} for keyword in node.keywords)
    )


def the_bus_handles_bodies_that_cannot_be_read(house: House) -> Iterator[str]:
    """`except UndecodableError` stands in `shared/bus` alone, and what catches the same for a message."""
    yield from _only_in(
        house.code, _catches_undecodable, "shared/bus", what="except UndecodableError"
    )
    messages = {
        node.name
        for file in house.code
        if file.inside(f"{CONTRACTS}/messages")
        for node in file.classes()
        if any(
            isinstance(at, ast.AnnAssign) and ast.unparse(at.target) == "stream" for at in node.body
        )
    }
    for file in house.code:
        if file.inside("shared/bus", *REFUSES):
            continue
        for node in file.nodes:
            if isinstance(node, ast.Try) and "ValidationError" in "".join(
                ast.unparse(handler.type) for handler in node.handlers if handler.type is not None
            ):
                tried = "\n".join(map(ast.unparse, node.body))
                for name in re.findall(r"(\w+)\.model_validate", tried):
                    if name in messages:
                        yield f"{file.path}:{node.lineno}: {name} is read by Seen.read of shared/bus"


def _catches_undecodable(node: ast.AST) -> bool:
    if not isinstance(node, ast.ExceptHandler) or node.type is None:
        return False
    return re.search(r"\bUndecodableError\b", ast.unparse(node.type)) is not None


REFUSES: Final = {
    "services/whatif/reading.py": "refuses a saved state with the field that is wrong"
}
"""Files that read messages which may come from a user's file, with the reason."""


def the_bus_keeps_leases(house: House) -> Iterator[str]:
    """Leadership is one function: nobody else asks for a lease."""
    yield from _only_in(
        house.code, _asks_for_lease, "shared/bus", "shared/testing", what="bus.lease(…)"
    )


def _asks_for_lease(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    return node.func.attr == "lease" and ast.unparse(node.func.value).endswith("bus")


def _only_in(
    files: Sequence[Source], is_meant: Callable[[ast.AST], bool], *homes: str, what: str
) -> Iterator[str]:
    for file in files:
        if file.inside(*homes):
            continue
        for node in file.nodes:
            if is_meant(node):
                yield f"{_at(file, node)}: {what} belongs to {homes[0]}"


# --- prose ---

_OUTSIDE: Final = re.compile(
    r"research/(?:kueue|tekton|ecosystem|foundations|aesthetics|prototypes|skeleton)"
    r"|(?<![\w/])(?:kueue|tekton|ecosystem|foundations|aesthetics)\.md"
    r"|\bDESIGN(?:\.md)?\b|\bHOUSE(?:\.md)?\b|\.\./shared/(?!nats|contracts)"
)


def the_repository_stands_by_itself(house: House) -> Iterator[str]:
    """No sentence points at a document that a reader of this repository does not have."""
    for file in house.all:
        for number, line in enumerate(file.text.splitlines(), start=1):
            if (found := _OUTSIDE.search(line)) is not None:
                yield f"{file.path}:{number}: {found[0]} is not in this repository"


_LOGS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical"})


def log_events_are_sentences(house: House) -> Iterator[str]:
    """Whoever reads one line of a log understands its event: it is no code, and more than one word."""
    for file in house.code:
        for node in file.nodes:
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr not in _LOGS or not re.search(
                r"\blog\b|_log\b|get_logger", ast.unparse(node.func.value)
            ):
                continue
            for event in _events(node.args[0] if node.args else node):
                if event is None:
                    yield f"{file.path}:{node.lineno}: write the event of a log line where it is logged"
                elif "_" in event or len(event.split()) == 1:
                    yield f"{file.path}:{node.lineno}: {event!r}: say in a sentence what happened"


def _events(node: ast.expr) -> list[str | None]:
    """What a log line may say, of both branches; None: it is not written here."""
    match node:
        case ast.IfExp():
            return [*_events(node.body), *_events(node.orelse)]
        case ast.Constant(value=str(event)):
            return [event]
        case _:
            return [None]


def _named(rules: Iterable[Rule]) -> dict[str, Rule]:
    return {rule.__name__: rule for rule in rules}


RULES: Final = _named(
    (
        imports_have_no_circles,
        folders_hold_at_most_twelve_modules,
        packages_say_what_goes_on_inside,
        test_files_are_short,
        test_functions_are_short,
        names_are_plain,
        no_room_has_a_metaphor,
        variables_say_what_they_hold,
        a_service_uses_a_class_name_once,
        public_names_are_spelled_without_underscore,
        limits_say_why_that_value,
        labels_and_subjects_live_in_contracts,
        streams_are_named_by_contracts,
        streams_are_read_by_the_bus,
        no_two_services_define_the_same_string,
        no_two_services_spell_the_same_word,
        sets_of_states_have_one_home,
        patterns_have_one_home,
        no_service_parses_a_sentence_of_another,
        contracts_are_built_complete,
        the_bus_handles_bodies_that_cannot_be_read,
        the_bus_keeps_leases,
        the_repository_stands_by_itself,
        log_events_are_sentences,
        public_definitions_are_used,
        public_constants_are_used,
        public_methods_are_used,
        private_definitions_are_read,
        no_test_judges_time,
    )
)

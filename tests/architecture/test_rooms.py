"""ARCHITECTURE.md, CONTRIBUTING.md, STYLE.md and the ADRs name what exists, and every folder of a service."""

import re
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from services.ctl.programs import SERVICES
from shared.bus.admin.permissions import reads_of
from shared.contracts.subjects import Stream

ROOT = Path(__file__).parents[2]
ARCHITECTURE, CONTRIBUTING = ROOT / "docs" / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"
STYLE = ROOT / "docs" / "STYLE.md"
QUOTED = re.compile(r"`([^`\n]+)`")
NAME_OF_FILE = re.compile(r"`(\w+)`(?: \([^)]*\))? of `([\w/.-]+\.(?:py|yaml))`")
OTHERS = {
    "0031-anchors-per-run.md": ("Immediate",),
    "0032-what-slips-past-the-webhook.md": ("IsManagingObjectsOwner", "status.terminating"),
    "0072-an-account-for-each-user-of-nats.md": ("verify_cert_and_check_known_urls",),
    "0090-people-and-the-console-read-without-consumers.md": ("priority_groups",),
    "0095-a-document-says-what-its-controller-makes.md": ("IsManagingObjectsOwner",),
    "0108-a-job-takes-the-workload-that-it-names.md": ("OutOfSync",),
    "0115-an-answer-says-that-its-server-leads.md": ("stepdown",),
    "0117-a-job-that-leaves-its-controller-waits-by-itself.md": ("--cascade=foreground",),
    "0129-an-end-that-users-can-write.md": ("workflow/controller/operator.go",),
    "0132-a-namespace-has-a-share-of-the-view.md": ("count/jobs.batch",),
    "0134-an-account-for-each-key-of-a-spoke.md": (
        "configureAccounts",
        "leafnodes.authorization",
        "max_expires",
        "pinned_certs",
        "reloadAuthorization",
        "server/reload.go",
    ),
    "0135-an-end-before-the-pods.md": ("status.terminating",),
    "0137-a-run-lists-its-task-runs.md": ("status.taskRuns",),
}
"""By page, names of Kubernetes, Kueue, Tekton, Argo and nats-server, which no file here has to have."""

HISTORY = {"0092-the-auditor-keeps-books-of-its-own.md": ("SLUICE_AUDIT_SECONDS",)}
"""By page, what the page says was there before."""

SPELLED = {
    "STYLE.md": ("Mirror", "Usher"),
    "0073-receivers-check-what-is-asked.md": ("sluice.dispatch.hub.team-a.x",),
    "0118-what-a-writer-says-is-not-the-server.md": (
        "$JS.ACK.HOSTS_NOW.patcher-hub-host.x.patcher-east-host.1.1.0",
    ),
    "0127-an-object-wraps-others.md": ("podSets[].path",),
    "0130-what-a-spoke-says-is-data.md": ("/spec/",),
}
"""By page, examples of bad names, of subjects and fields, which are in no file as they stand there."""

WRITTEN_OUT = re.compile(r"[ <*…]|\{cluster\}")
"""Commands, and patterns of names."""


@cache
def tree() -> tuple[list[str], str, frozenset[str]]:
    """Files and folders, the text of all sources, and its words."""
    tops = ("services", "shared", "tests", "deploy", "docs")
    paths = [p for top in tops for p in (ROOT / top).rglob("*") if "__pycache__" not in p.parts]
    paths += [p for p in ROOT.iterdir() if p.is_file()]
    own = {Path(__file__), Path(__file__).with_name("names.py")}  # They name what must not be.
    code = [
        p
        for p in paths
        if p not in own
        and (p.suffix in {".py", ".yaml", ".toml", ""} or p.parent.name == "reference")
    ]
    text = "\n".join(p.read_text(errors="replace") for p in code if p.is_file())
    return (
        [f"/{p.relative_to(ROOT).as_posix()}" for p in paths],
        text,
        frozenset(re.findall(r"\w+", text)),
    )


def written_out(word: str) -> Iterator[str]:
    """`a/{b,c}.yaml` is two names."""
    before, brace, rest = word.partition("{")
    among, _, after = rest.partition("}")
    yield from (before + one + after for one in among.split(",")) if brace else (word,)


def names_nothing(word: str) -> bool:
    paths, text, words = tree()
    place = f"/{word.rstrip('/')}"
    if any(path.endswith(place) for path in paths):
        return False
    if "/" in word and re.fullmatch(r"[\w/-]+/|[\w/.-]+\.(py|yaml|md)", word):
        return True
    if re.fullmatch(r"\w+(\.\w+)*[(=].*|([A-Z]\w+|shared|services)(\.\w+)+", word):
        # A call, a setting with its value, or what a class or a module has.
        return not words.issuperset(re.findall(r"\w+", re.split("[(=]", word)[0]))
    return word not in words and (word.isidentifier() or word not in text)


def unknown_in(page: str) -> list[str]:
    words = {word for word in QUOTED.findall(page) if not WRITTEN_OUT.search(word)}
    return sorted(
        one for word in words for one in written_out(word) if names_nothing(one)
    ) + sorted(
        f"{name} of {path}"
        for name, path in NAME_OF_FILE.findall(page)
        if not any(
            defines(name, (ROOT / each[1:]).read_text())
            for each in tree()[0]
            if each.endswith(f"/{path}")
        )
    )


def defines(name: str, text: str) -> bool:
    """Whether a module or a document defines it: an import does not."""
    return bool(
        re.search(rf"^ *(?:(?:async )?def |class |- )?{name}\b(?!,| as )", text, re.MULTILINE)
    )


PAGES = [ARCHITECTURE, CONTRIBUTING, STYLE, *sorted((ROOT / "docs" / "adr").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_exists_or_is_excepted(page: Path) -> None:
    excepted = [name for table in (OTHERS, HISTORY, SPELLED) for name in table.get(page.name, ())]
    assert unknown_in(page.read_text()) == sorted(excepted)


@pytest.mark.parametrize(
    "line",
    [
        "`services/quota/nowhere.py`",
        "`nowhere/` holds",
        "`_NO_SUCH_NAME`",
        "`deploy/kubernetes/base/{watcher,nobody}/rbac.yaml`",
        "`Admission.renumbered` (a draft)",
        "`eventual(condition)`",
        "`SLUICE_NOBODY_READS=1`",
        "`shared.runtime.loop.walked_on`",
        "`ANSWERED_BY` of `shared/contracts/windows.py`",
        "`REJECTION_REMEDIES` of `services/quota/engine/views/explanation.py`",
    ],
)
def test_name_that_does_not_exist_is_found_in_a_line(line: str) -> None:
    assert unknown_in(line)


def row_of(folder: str) -> str:
    """What the table of rooms says is inside of a folder."""
    [row] = re.findall(
        rf"^\|[^|]*`{folder}`[^|]*\| (.*) \|$", ARCHITECTURE.read_text(), re.MULTILINE
    )
    return str(row)


PACKAGES = sorted(path.parent.name for path in (ROOT / "services").glob("*/__init__.py"))


@pytest.mark.parametrize("service", PACKAGES)
def test_row_of_a_service_names_each_of_its_folders(service: str) -> None:
    inside = row_of(f"services/{service}")
    folders = [path.parent.name for path in (ROOT / "services" / service).glob("*/__init__.py")]
    assert [name for name in folders if f"{name}/" not in inside] == []


@pytest.mark.parametrize("service", [service.value for service in SERVICES])
def test_table_of_services_has_the_logs_that_each_may_read(service: str) -> None:
    said = row_of(service).partition(" | ")[0]
    assert {word for word in QUOTED.findall(said) if word.isupper()} == set(reads_of(service) or ())


NODES = {"webhook": "classifier", "projection": "classifier"}
"""Nodes of the diagram that are a part of a service."""

LEFT_OUT = {Stream.DEAD}
"""What the diagram does not show, as the sentence above it says."""

NUMBERS = {6: "six", 8: "eight"}


def edges(diagram: str) -> set[tuple[str, str, str]]:
    """The arrows of a diagram that stand for a stream: service, stream, service."""
    found = set()
    for begin, both, text, end in re.findall(
        r"^  (.+?) (<?)-- (.+?) --> (.+)$", diagram, re.MULTILINE
    ):
        before, after = (
            [NODES.get(one, one) for one in re.findall(r"\w+", re.sub(r"\[.*?\]", "", side))]
            for side in (begin, end)
        )
        pairs = {*product(before, after)} | ({*product(after, before)} if both else set())
        found |= {(one, stream, other) for stream in text.split(", ") for one, other in pairs}
    return {edge for edge in found if edge[1] in set(Stream)}


def streams_in(text: str) -> set[str]:
    return {word for word in QUOTED.findall(text) if word in set(Stream)}


def contradictions(diagram: str) -> list[str]:
    """What the table of services says otherwise than a diagram, in both directions."""
    arrows, found = edges(diagram), []
    services = re.findall(r"^\| `(\w+)` \|.*\|.*\|.*\|$", ARCHITECTURE.read_text(), re.MULTILINE)
    writes = {one: streams_in(row_of(one).split(" | ")[1]) for one in services}
    for service, written in writes.items():
        reads = row_of(service).split(" | ")[0]
        into = {stream for _, stream, end in arrows if end == service}
        out = {stream for begin, stream, _ in arrows if begin == service}
        others = set().union(*(streams for one, streams in writes.items() if one != service))
        wanted = (streams_in(reads.partition("its own")[0]) & others) - LEFT_OUT
        number = NUMBERS.get(len(streams_in(reads)))
        if f"  {service} -. reads {number} views .-> streams" in diagram:
            wanted = set()
        found += [f"{service} reads {one}: no arrow" for one in wanted - into]
        found += [f"an arrow of {one} to {service}: not read" for one in into - streams_in(reads)]
        found += [f"{service} writes {one}: no arrow" for one in written - LEFT_OUT - out]
        found += [f"an arrow of {one} from {service}: not written" for one in out - written]
    return sorted(found)


def test_diagram_of_services_has_the_streams_of_the_table() -> None:
    assert contradictions(ARCHITECTURE.read_text().split("```")[1]) == []


@pytest.mark.parametrize(
    ("there", "instead", "found"),
    [
        ("quota & dispatcher & provisioner & patcher", "quota", "patcher reads OBSERVED: no arrow"),
        ("-- OUTCOMES -->", "-- TRACES -->", "an arrow of TRACES to quota: not read"),
        ("quota -- QUEUES --> patcher", "", "quota writes QUEUES: no arrow"),
        ("<-- HOSTS -->", "<-- HOSTS, KEYS -->", "an arrow of KEYS from patcher: not written"),
        ("reads six views", "reads five views", "tracer reads OUTCOMES: no arrow"),
    ],
)
def test_arrow_that_contradicts_the_table_is_found(there: str, instead: str, found: str) -> None:
    diagram = ARCHITECTURE.read_text().split("```")[1]
    assert there in diagram
    assert found in contradictions(diagram.replace(there, instead))


def ways(page: str, title: str) -> dict[str, str]:
    """By change, what a page says of it."""
    parts = re.split(title, page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


WAYS = ways(ARCHITECTURE.read_text().partition("## Where a change goes")[2], r"^\*\*(.+?)\*\*")
"""The rooms of each change, as ARCHITECTURE.md lists them."""

FILES = ways(CONTRIBUTING.read_text().partition("## Before you send")[0], r"^### (.+)$")
"""The files of each change, as CONTRIBUTING.md lists them."""

ROOM = re.compile(
    r"`((?:services|shared|deploy|docs|tests)/[\w./{},<>-]*|pyproject\.toml|uv\.lock)`"
)
TESTS = ("tests/unit", "tests/contract", "tests/fuzz", "tests/integration")
"""ARCHITECTURE.md says of these once that they follow the folders of the code."""


def rooms_in(text: str) -> set[str]:
    return {
        one.rstrip("/")
        for name in ROOM.findall(text.partition("\n## ")[0])
        for one in written_out(name)
    }


def is_in(place: str, room: str) -> bool:
    return place == room or place.startswith(f"{room}/")


def test_both_pages_tell_of_the_same_changes() -> None:
    assert list(WAYS) == list(FILES)


@pytest.mark.parametrize("change", FILES)
def test_files_of_a_change_are_in_the_rooms_that_architecture_lists(change: str) -> None:
    files, rooms = rooms_in(FILES[change]), rooms_in(WAYS[change])
    astray = {f for f in files if not any(is_in(f, room) for room in rooms)}
    assert sorted(f for f in astray if not f.startswith(TESTS)) == []


@pytest.mark.parametrize("change", WAYS)
def test_rooms_of_a_change_have_files_that_contributing_lists(change: str) -> None:
    files, rooms = rooms_in(FILES[change]), rooms_in(WAYS[change])
    assert sorted(room for room in rooms if not any(is_in(f, room) for f in files)) == []

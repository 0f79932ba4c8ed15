"""Messages about a large review, between the webhook and the process that answers it.

The review goes there as it came, with what it takes to answer it: rules, the cluster's Integrations and
the budget where they changed. What the webhook knows of a namespace stays here, and is asked for.
"""

from dataclasses import asdict
from functools import partial
from typing import Any, Final

from services.classifier.cel import CelEngine
from services.classifier.evaluation.budget import Budget
from services.classifier.evaluation.frames import Frame, Setup
from services.classifier.evaluation.worker import Pipe
from services.classifier.metrics import EVALUATIONS, MUTATIONS
from services.classifier.rules import Rules
from services.classifier.webhook.context import NamespaceContext
from services.classifier.webhook.review import Failure, Outcome, Reply
from services.classifier.webhook.reviewing.within_budget import WithinBudget
from shared.contracts.kube.kinds import JOB, PIPELINE_RUN, Kind, Object
from shared.integrations import Integration, Integrations

_ONLY: Final = {kind.kind: kind for kind in (PIPELINE_RUN, JOB)}
"""The kinds that have a path of their own."""

_FACTS: Final = ("managed", "default_queue", "manage_without_queue", "knows_decisions")
_USERS: Final = ("patchers", "request_editors")
_ASKED: Final = (
    "default_priority_class",
    "uses_multikueue",
    "is_admitted",
    "is_admitted_as",
    "has_admitted",
)
"""Fields of a `NamespaceContext`: told at once, sets of users, and functions that are asked."""

CONVERSION_CPU_SECONDS: Final = 2.0
CONVERSION_CPU_SECONDS_OF_A_MIB: Final = 0.2
"""What a list may take. One of typical Workloads takes a quarter of that."""

_COUNTERS: Final = {"evaluations": EVALUATIONS, "mutations": MUTATIONS}


def review_frame(body: bytes, rules: Rules | None, kind: Kind | None) -> Frame:
    """Write the review. `rules`: None for a validation."""
    does = "validate" if rules is None else "mutate"
    return Frame({"do": does, "kind": None if kind is None else kind.kind}, body)


def conversion_frame(body: bytes) -> Frame:
    """Write the review of a conversion."""
    cpu = CONVERSION_CPU_SECONDS + CONVERSION_CPU_SECONDS_OF_A_MIB * len(body) / 2**20
    return Frame({"do": "convert", "cpu": cpu}, body)


def kind_of(frame: Frame) -> Kind | None:
    """Return the only kind that the review may be of; None for any."""
    name = frame.head["kind"]
    return None if name is None else _ONLY[name]


def setups_of(here: WithinBudget, rules: Rules | None, namespace: str) -> dict[str, Setup]:
    """Return what must be known to answer a review as it would be answered here."""
    found = {"budget": Setup(here.budget, partial(asdict, here.budget))}
    if rules is not None:
        documents = here.context_of(namespace).integrations.in_force()
        found["rules"] = Setup(rules, partial(_rules_written, rules))
        found["integrations"] = Setup(documents, partial(_documents_written, documents))
    return found


def budget_of(frame: Frame) -> Budget:
    """Read the budget."""
    return Budget(**{name: value for name, value in frame.head.items() if name != "do"})


def _rules_written(rules: Rules) -> dict[str, Any]:
    return {
        "queue_name": rules.queue_name,
        "multi_kueue_override": rules.multi_kueue_override,
        "expressions": rules.programs.texts,
    }


def rules_of(frame: Frame, engine: CelEngine) -> Rules:
    """Read the rules, which the parent process has validated."""
    return Rules(
        queue_name=frame.head["queue_name"],
        multi_kueue_override=frame.head["multi_kueue_override"],
        programs=engine.compile(frame.head["expressions"]),
        digest="",
        ignored=(),
    )


def _documents_written(documents: tuple[Integration, ...]) -> dict[str, Any]:
    # What a document leaves out says nothing, and what it sets to null does.
    written = (
        one.document.model_dump(mode="json", by_alias=True, exclude_unset=True) for one in documents
    )
    return {"documents": list(written)}


def integrations_of(frame: Frame) -> Integrations:
    """Read the cluster's Integrations, and compile all that are in force: no review pays for that.

    Raises `ValueError` if one is not in force here: its objects would pass as those of an unknown kind.
    """
    found = Integrations()
    found.replace_all(frame.head["documents"])
    if refused := [state.problem for state in found.states() if state.problem is not None]:
        raise ValueError(f"documents that were in force are refused: {refused}")
    for one in found:
        one.compile()
    return found


def answer_question(here: WithinBudget, name: str, *arguments: str) -> Any:
    """Answer what the other process asks."""
    if name == "traceparent":
        return here.new_traceparent()
    context = here.context_of(arguments[0])
    if name in _ASKED:
        return getattr(context, name)(*arguments[1:])
    facts = {fact: getattr(context, fact) for fact in _FACTS}
    return facts | {users: sorted(getattr(context, users)) for users in _USERS}


def context_from(pipe: Pipe, integrations: Integrations, namespace: str) -> NamespaceContext:
    """Return what the webhook knows of a namespace."""
    fields: dict[str, Any] = pipe.ask("context", namespace)
    users: dict[str, Any] = {name: frozenset(fields.pop(name)) for name in _USERS}
    asked: dict[str, Any] = {name: partial(pipe.ask, name, namespace) for name in _ASKED}
    return NamespaceContext(integrations=integrations, **fields, **users, **asked)


def reply_frame(
    reply: Reply, counted: dict[str, dict[str, float]], parts: list[bytes] | None = None
) -> Frame:
    """Write a reply, with what was counted on the way to it. `parts`: its body, if that is long."""
    head = {
        "status": reply.status,
        "outcome": reply.outcome,
        "message": reply.message,
        "cause": reply.cause,
        "traceparent": reply.traceparent,
        "about": reply.about,
        "failure": None if reply.failure is None else reply.failure._asdict(),
        "request": reply.request and _for_logs(reply.request),
        "counted": counted,
    }
    return Frame(head, reply.body if parts is None else parts)


def reply_of(frame: Frame) -> Reply:
    """Read a reply, and count what was counted there."""
    fields = dict(frame.head)
    for counter, results in fields.pop("counted").items():
        for result, number in results.items():
            _COUNTERS[counter].labels(result).inc(number)
    failure, (workload, trace) = fields.pop("failure"), fields.pop("about")
    return Reply(
        about=(workload, trace),
        body=frame.whole(),
        outcome=Outcome(fields.pop("outcome")),
        failure=None if failure is None else Failure(**failure),
        **fields,
    )


def _for_logs(request: Object) -> Object:
    """Return what logs and spans show of a request."""
    obj, user = request.get("object"), request.get("userInfo")
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    generate = metadata.get("generateName") if isinstance(metadata, dict) else None
    return {
        "uid": request["uid"],
        "namespace": request.get("namespace"),
        "name": request.get("name"),
        "object": {"metadata": {"generateName": generate}},
        "userInfo": {"username": user.get("username") if isinstance(user, dict) else None},
    }

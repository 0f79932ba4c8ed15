"""`docs/reference/lifecycle.md`: the states of a workload, from quota's transition table."""

from enum import Enum
from typing import Final, TypeVar

from services.quota.lifecycle.table import TRANSITIONS, Event, State
from shared.contracts.kueue.docstrings import docstrings

_Enum = TypeVar("_Enum", bound=Enum)

_CONDITIONS: Final = {
    State.PENDING: "`QuotaReserved=False`, with the reason for which it waits",
    State.QUOTA_RESERVED: "`QuotaReserved=True`, `Admitted=False (UnsatisfiedAdmissionChecks)`",
    State.ADMITTED: "`Admitted=True`; `PodsReady=False` where pods are waited for",
    State.READY: "`Admitted=True`, `PodsReady=True`",
    State.EVICTED: "`Evicted=True`, and still `QuotaReserved=True`",
    State.REQUEUED: "`QuotaReserved=False`, `Evicted=True`, `Requeued` false until the wait is over",
    State.DEACTIVATED: "`QuotaReserved=False (Deactivated)`, `Evicted=True (Deactivated…)`",
    State.FINISHED: "`Finished=True`",
}
"""What `kubectl get workload` shows of a state."""

_INTRODUCTION: Final = """\
What quota knows of a workload is one of eight states. An event leads to the next one, and may do more; the
table below is the program's own. **What is not in the table changes nothing**: an event that comes late or
once more never moves a workload backwards.

All that a state needs to be remembered (counts, times, the mark that `spec.active` has still to be set) is in
the workload's latest message in `ADMISSIONS`, and in the status of its Workload object. So no delay and no
time limit is lost when a process, or NATS, is killed: whoever decides next reads them there.
"""


def lifecycle_page(generated: str) -> str:
    """The page. `generated` says how it is made."""
    return "\n".join(
        [
            "# The life of a workload",
            "",
            generated,
            "",
            _INTRODUCTION,
            "```mermaid",
            *_diagram(),
            "```",
            "",
            "## States",
            "",
            "| state | meaning | what its Workload says |",
            "|---|---|---|",
            *(
                f"| {s} | {text} | {_CONDITIONS[s]} |"
                for s, text in member_docstrings(State).items()
            ),
            "",
            "## Events",
            "",
            "| event | meaning |",
            "|---|---|",
            *(f"| {event} | {text} |" for event, text in member_docstrings(Event).items()),
            "",
            "## Transitions",
            "",
            "| in state | on event | becomes | and |",
            "|---|---|---|---|",
            *_transitions(),
            "",
        ]
    )


def _diagram() -> list[str]:
    lines = ["stateDiagram-v2"]
    lines += [f'    state "{state}" as {state.name}' for state in State]
    lines.append(f"    [*] --> {State.PENDING.name}")
    edges: dict[tuple[State, State], list[str]] = {}
    for (state, event), transition in TRANSITIONS.items():
        edges.setdefault((state, transition.state), []).append(event)
    for (state, after), events in edges.items():
        if after is not State.FINISHED:  # Every state leads there: the edges would hide the rest.
            lines.append(f"    {state.name} --> {after.name}: {'<br>'.join(events)}")
    lines.append(f"    {State.READY.name} --> {State.FINISHED.name}: finished, from every state")
    lines.append(f"    {State.FINISHED.name} --> [*]")
    return lines


def _transitions() -> list[str]:
    rows = []
    for (state, event), transition in TRANSITIONS.items():
        effects = "; ".join(transition.effects)
        rows.append(f"| {state} | {event} | **{transition.state}** | {effects} |")
    return rows


def member_docstrings(enum: type[_Enum]) -> dict[_Enum, str]:
    """The docstring below each member, which Python does not keep."""
    texts = docstrings(enum)
    return {member: " ".join(texts.get(member.name, "").split()) for member in enum}

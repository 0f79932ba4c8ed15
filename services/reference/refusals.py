"""`docs/reference/refusals.md`: what is refused, by which rule, in which words, and what to do about it."""

import re
from collections.abc import Iterator
from typing import Final

from services.classifier.metrics import REVIEWS_REFUSED
from services.classifier.refusal import WebhookRule
from services.console.status_error import ConsoleRule
from services.patcher.cluster.refusals import DecisionRule, HostRule, HubStatusRule
from services.patcher.multikueue.orders import OrderRule
from services.provisioner.keys.seal_key import SealKeyRule
from services.quota.trust.refusals import AnswerRule, OutcomeRule
from shared.bus.spoke_gateway.refusals import GatewayRule
from shared.contracts.reasons import RefusalRule
from shared.integrations.document import parse
from shared.integrations.registry import documents, opted
from shared.runtime.connections import ConnectionRule
from shared.telemetry.refusals import series_name

PLACES: Final[dict[str, tuple[type[RefusalRule], ...]]] = {
    "webhook": (WebhookRule, ConnectionRule),
    "quota": (AnswerRule, OutcomeRule),
    "patcher": (DecisionRule, HostRule, HubStatusRule, OrderRule),
    "provisioner": (SealKeyRule,),
    "gateway of spokes": (GatewayRule,),
    "console": (ConsoleRule,),
}
"""Who refuses, and the rules."""

_FIELD: Final = re.compile(r"\{(\w+)[^}]*\}")

_INTRODUCTION: Final = """\
What is refused is told to whom it concerns in the text below (`{…}` is a value), counted in the time series
that stands beside it, and logged once. A message of the bus that is refused changes nothing; a patcher keeps
it as a [dead letter](../how-to/dead-letters.md). What quota keeps waiting is not refused:
[Reasons](reasons.md) has those words, and `kueue_unadmitted_workloads` counts them. What cannot be read at
all is counted in `sluicegate_bus_unreadable_total`.
"""


def refusals_page(generated: str) -> str:
    """The page. `generated` says how it is made."""
    lines = ["# Refusals", "", generated, "", _INTRODUCTION]
    for place, rules in PLACES.items():
        for each in rules:
            what = (each.__doc__ or "").split(". ")[0].rstrip(".")
            lines += [
                f"## {place.capitalize()}: {what[0].lower()}{what[1:]}",
                "",
                *_table(each),
                "",
            ]
    lines += ["## Objects of a kind", "", *_kinds()]
    return "\n".join(lines) + "\n"


def _table(rules: type[RefusalRule]) -> Iterator[str]:
    yield from ("| rule | text | what to do | counted in |", "|---|---|---|---|")
    for rule in rules:
        text = _FIELD.sub(r"{\1}", rule.text)
        yield f"| `{rule.name}` | {_code(text)} | {rule.remedy} | `{_series(rule)}` |"


def _series(rule: RefusalRule) -> str:
    if isinstance(rule, ConnectionRule):  # Who limits connections says where they are counted.
        return series_name(REVIEWS_REFUSED, cause=rule.label)
    return rule.series


def _kinds() -> Iterator[str]:
    """What the documents of the kinds that ship refuse."""
    yield f"The webhook refuses these by `{WebhookRule.NOT_COUNTABLE.name}` where they name a queue."
    yield from ("", "| kind | field | text |", "|---|---|---|")
    for _, text in (*documents(), *opted()):
        for obj, _ in parse(text):
            for refusal in obj["spec"].get("refuse") or ():
                kind, message = obj["spec"]["kind"]["kind"], refusal["message"]
                yield f"| {kind} | `{refusal['field']}` | {_code(message)} |"


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"

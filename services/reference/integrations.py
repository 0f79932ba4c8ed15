"""`docs/reference/integration.md`: the format of Integration documents, from its models."""

from typing import Final

from services.ctl.admin.integration import list_lines
from shared.contracts.kueue import integrations
from shared.contracts.kueue.schema import ApiModel, descriptions
from shared.integrations.registry import documents, opted

_PARTS: Final[tuple[tuple[str, type[ApiModel]], ...]] = (
    ("spec", integrations.IntegrationSpec),
    ("spec.kind", integrations.IntegratedKind),
    ("spec.podSets[]", integrations.PodSetSpec),
    ("spec.podSets[].equalCount", integrations.EqualCount),
    ("spec.podSets[].wrapped", integrations.WrappedSpec),
    ("spec.podSets[].wrapped.declared", integrations.DeclaredPods),
    ("spec.refuse[]", integrations.Refusal),
    ("spec.gate", integrations.GateSpec),
    ("spec.group", integrations.GroupSpec),
    ("spec.finish", integrations.FinishSpec),
    ("spec.stop", integrations.StopSpec),
    ("spec.webhook", integrations.WebhookSpec),
    ("operations of a patch", integrations.PatchOperation),
    ("status", integrations.IntegrationStatus),
)

_INTRODUCTION: Final = """\
An Integration is a cluster-wide object, `sluicegate.dev/v1alpha1`, that lets objects of a kind wait for
quota. The [tutorial](../tutorial/integration.md) writes one in ten lines; `sluice integration init CRD.yaml`
writes a first one from the schema of a kind, and `sluice integration try FILE --object OBJ.yaml` shows
what one makes of an object (exit status 0: it is in order and reads the object; 1: it is in order, but
does not mean the object, refuses it or fails on it; 2: a file is wrong).

* Expressions are of the Common Expression Language, with optional fields (`spec.?parallelism.orValue(1)`),
  `cel.bind`, the functions on strings, and three of ours. `"1,3-5".indexesBelow(4)`: how many whole numbers
  below 4 such a text names, here 2. `map.valuesIn(["x"])`: how many values of a map or a list are among those
  texts. `"4g".mebibytes()`: a size as the JVM has it, in MiB; a number alone is MiB. They are
  type-checked when the document is loaded; what is wrong is refused with field, line and reason.
* All expressions that look at one object share 10,000 loop steps. One that needs more, fails on an object,
  or returns another type than it must makes that object wait, with the field and the reason: an unknown
  `held` counts as held, an unknown `active` as not held.
* Expressions are given at most 5,000 entries of lists and maps, and 500,000 characters, of the fields of an
  object that they read; less if they make more of it, by loops in loops, `map` and `filter`, `replace` or
  repeated `+` (ADR 131). An object that has more in its spec is refused, or stopped if it runs in a queue;
  what is too long in its status leaves only the expressions unknown that read it. An expression that could
  fill the memory from a short text is refused with the document.
* A path that the schema of the kind does not have is refused, by `check --crd CRD.yaml` and, once applied, by
  the patcher (reason `SchemaMismatch`).
* A document that is refused leaves in force what was accepted before (`status.accepted`); its condition
  `Active` says why.
* Whatever a document says, an object that the controller of another one made (`children` of that one's
  document) waits and runs with that one, as far as its quota goes. What only names a controller waits by
  itself.
* Of the kinds that ship, PipelineRun, Job and JobSet are always watched; the others once the API server
  serves them, which is looked for every minute.
* Pods wait only where the configuration lists the framework `pod` ([how](../how-to/pods.md)).
* An Integration object for a kind that ships takes the place of the shipped document. It may read objects
  otherwise; its patches write the fields that those of the shipped document write.
* A patch that holds, starts, stops or ends a job writes a text, a number, true or false below `/spec/`, or
  one annotation or label: nothing that says what runs.

These ship, each as such a document:
"""


def integration_page(generated: str) -> str:
    """The page. `generated` says how it is made."""
    lines = ["# Integration", "", generated, "", _INTRODUCTION, "```", *list_lines(), "```"]
    for where, model in _PARTS:
        lines += ["", f"## `{where}`" if " " not in where else f"## {where.capitalize()}", ""]
        lines += [
            _one_line(model.__doc__ or ""),
            "",
            "| field | needed | meaning |",
            "|---|---|---|",
        ]
        texts = descriptions(model)
        for name, field in model.model_fields.items():
            needed = "yes" if field.is_required() else ""
            meaning = _one_line(texts.get(name, "")).replace("|", "\\|")
            lines.append(f"| `{field.alias or name}` | {needed} | {meaning} |")
    for name, text in (*documents(), *opted()):
        lines += ["", f"## `{name}`", "", "```yaml", text.rstrip(), "```"]
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())

"""Parses and checks tekton-kueue's configuration.

queueName: pipelines-queue
multiKueueOverride: false
cel:
  expressions: [ … ]
"""

import hashlib
from dataclasses import dataclass
from typing import Any, Final

import yaml

from services.classifier.cel import CelEngine, CompileError, Programs
from services.classifier.cel.mutations import explain_label_value

CONFIGURATION_FILE: Final = "config.yaml"
"""The name of the file in a folder, and of the key in a ConfigMap."""

CONFIGURATION_BYTES_MAX: Final = 1024 * 1024
"""The size limit of a ConfigMap."""

_FIELDS: Final = {"": {"queueName", "multiKueueOverride", "cel"}, "cel": {"expressions"}}
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class RulesError(ValueError):
    """The configuration cannot be used. The message names field, value and rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A compiled configuration."""

    queue_name: str
    """The LocalQueue of every PipelineRun that does not name one."""

    multi_kueue_override: bool
    """True: every PipelineRun runs on another cluster, whatever its `spec.managedBy` is."""

    programs: Programs
    digest: str
    """SHA-256 of the text."""

    ignored: tuple[str, ...]
    """Paths of unknown fields. tekton-kueue ignores them too; they deserve a warning."""


def parse_rules(text: str, engine: CelEngine) -> Rules:
    """Parse and compile a configuration. Raises `RulesError` for the first problem."""
    if len(text.encode(errors="surrogatepass")) > CONFIGURATION_BYTES_MAX:
        raise RulesError(f"configuration: larger than {CONFIGURATION_BYTES_MAX} bytes")
    try:
        # Both values of `_LOADER` are safe loaders.
        document = yaml.load(text, Loader=_LOADER)  # noqa: S506
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RulesError(f"configuration: not YAML: {' '.join(str(error).split())}") from error
    top = _mapping(document, "configuration")
    cel = _mapping(top.get("cel"), "cel")
    try:
        programs = engine.compile(_expressions(cel.get("expressions")))
    except CompileError as error:
        raise RulesError(str(error)) from error
    override = top.get("multiKueueOverride")
    if override is not None and not isinstance(override, bool):
        raise RulesError(f"multiKueueOverride: must be true or false, got {override!r}")
    return Rules(
        queue_name=_queue_name(top.get("queueName")),
        multi_kueue_override=bool(override),
        programs=programs,
        digest=hashlib.sha256(text.encode()).hexdigest(),
        ignored=tuple(
            f"{prefix}.{field}".lstrip(".")
            for prefix, given in (("", top), ("cel", cel))
            for field in given
            if field not in _FIELDS[prefix]
        ),
    )


def _queue_name(value: Any) -> str:
    if value is None or value == "":
        raise RulesError("queueName: is not set; it names the LocalQueue of every PipelineRun")
    if not isinstance(value, str):
        raise RulesError(f"queueName: must be a string, got {value!r}; quote it")
    if problem := explain_label_value(value):
        raise RulesError(f"queueName: {value!r} cannot be a label value: {problem}")
    return value


def _expressions(value: Any) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise RulesError(f"cel.expressions: must be a list, got {type(value).__name__}")
    for index, expression in enumerate(value):
        if not isinstance(expression, str):
            raise RulesError(
                f"cel.expressions[{index}]: must be a string, got {str(expression)[:80]!r}"
            )
    return value


def _mapping(value: Any, path: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RulesError(f"{path}: must be an object, got {str(value)[:80]!r}")
    return value

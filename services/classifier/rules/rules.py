"""The classification rules: tekton-kueue's configuration, read, checked, and the last good one kept.

queueName: pipelines-queue
multiKueueOverride: false
cel:
  expressions: [ … ]
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog
import yaml

from services.classifier.cel import CelEngine, CompileError, Programs
from services.classifier.cel.mutations import explain_label_value
from services.classifier.metrics import FAILURE, RELOADS, SUCCESS

__all__ = [
    "CONFIGURATION_BYTES_MAX",
    "CONFIGURATION_FILE",
    "Rules",
    "RulesError",
    "RulesHolder",
    "parse_rules",
]

log = structlog.get_logger(__name__)

CONFIGURATION_FILE: Final = "config.yaml"
"""The name of the file in a folder, and of the key in a ConfigMap."""

CONFIGURATION_BYTES_MAX: Final = 1024 * 1024
"""What fits into a ConfigMap."""

_FIELDS: Final = {"": {"queueName", "multiKueueOverride", "cel"}, "cel": {"expressions"}}
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class RulesError(ValueError):
    """The configuration cannot be used. The text names field, value and rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """One configuration, compiled."""

    queue_name: str
    """The LocalQueue of every PipelineRun that does not name one."""

    multi_kueue_override: bool
    """Every PipelineRun is dispatched to another cluster, whatever it says in `spec.managedBy`."""

    programs: Programs
    digest: str
    """Of the text: equal texts are equal rules."""

    ignored: tuple[str, ...]
    """Fields that this format does not have. The reference ignores them too; worth a warning."""


def parse_rules(text: str, engine: CelEngine) -> Rules:
    """Read and compile a configuration. Raises `RulesError` for the first thing that is wrong."""
    if len(text.encode(errors="surrogatepass")) > CONFIGURATION_BYTES_MAX:
        raise RulesError(f"configuration: larger than {CONFIGURATION_BYTES_MAX} bytes")
    try:
        # The loader is a safe one, by name or by its C twin.
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


class RulesHolder:
    """The rules in force. A configuration that cannot be used changes nothing.

    `current` is replaced as a whole: who took it once works with one configuration to the end.
    """

    def __init__(self, engine: CelEngine, *, last_good: Path | None = None) -> None:
        self._engine = engine
        self._last_good = last_good
        self.current: Rules | None = None
        """None until the first good configuration: nothing may be admitted before."""
        self.error: str | None = None
        """Why the configuration offered last is not in force; None if it is."""

    def offer(self, text: str) -> bool:
        """Put a configuration in force; say whether it is. The text is kept on disk if it is good."""
        try:
            rules = parse_rules(text, self._engine)
        except RulesError as error:
            self.error = str(error)
            RELOADS.labels(FAILURE).inc()
            return False
        RELOADS.labels(SUCCESS).inc()
        self.error = None
        if self.current is None or self.current.digest != rules.digest:
            self.current = rules
            self._keep(text)
        return True

    def restore(self) -> bool:
        """Use what was good before a restart, until something newer is offered."""
        if self.current is None and self._last_good is not None and self._last_good.is_file():
            self.offer_file(self._last_good)
        return self.current is not None

    def offer_file(self, path: Path) -> bool:
        """Put the configuration in a file in force. A file that cannot be read changes nothing."""
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            self.error = f"{path}: {error}"
            RELOADS.labels(FAILURE).inc()
            return False
        return self.offer(text)

    def _keep(self, text: str) -> None:
        if self._last_good is None:
            return
        # Written beside and renamed: a crash leaves the old text or the new one, never half.
        beside = self._last_good.with_suffix(".new")
        try:
            self._last_good.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(text)
            beside.replace(self._last_good)
        except OSError as error:
            # The rules are in force all the same; only a restart would miss them.
            log.warning("cannot keep the configuration", path=str(beside), error=str(error))

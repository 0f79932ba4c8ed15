"""What `sluice mutate` does: one PipelineRun from a file, as the webhook would make it."""

from pathlib import Path
from typing import Any, Final

import orjson
import yaml

from services.classifier.cel import CelEngine
from services.classifier.mutate import mutate
from services.classifier.rules import CONFIGURATION_FILE, RulesError, parse_rules

__all__ = ["mutate_file"]

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def mutate_file(pipelinerun_file: Path | str, config_dir: Path | str) -> str:
    """Read a PipelineRun and `config.yaml` in a folder; return the mutated object as YAML.

    Raises `ValueError` (a file is missing or cannot be used) or `RefusedError` (the webhook would
    deny the object, with the code and the text it would give).
    """
    configuration = Path(config_dir) / CONFIGURATION_FILE
    try:
        rules = parse_rules(_text(configuration), CelEngine())
    except RulesError as error:
        raise ValueError(f"{configuration}: {error}") from error
    given = _one_object(Path(pipelinerun_file))
    if given.get("kind") != "PipelineRun":
        raise ValueError(f"{pipelinerun_file}: expected a PipelineRun, got {given.get('kind')!r}")
    made = mutate(given, rules).object
    return yaml.safe_dump({**made, "status": made.get("status") or {}}, sort_keys=False)


def _one_object(path: Path) -> dict[str, Any]:
    try:
        documents = [d for d in yaml.load_all(_text(path), Loader=_LOADER) if d is not None]
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise ValueError(f"{path}: expected one object, got {len(documents)} documents")
    # Through JSON, as it would come from an API server: dates become text, keys are strings.
    try:
        plain = orjson.dumps(documents[0], option=orjson.OPT_NON_STR_KEYS, default=str)
    except TypeError as error:
        raise ValueError(f"{path}: cannot be JSON: {error}") from error
    loaded: dict[str, Any] = orjson.loads(plain)
    return loaded


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from error

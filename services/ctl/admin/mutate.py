"""`sluice mutate`: the webhook's mutation of a file, for trying rules."""

from pathlib import Path

from services.classifier.cel import CelEngine
from services.classifier.rules import CONFIGURATION_FILE, Rules, RulesError, parse_rules
from services.classifier.webhook.mutation import RefusedError, mutate
from services.ctl.get.yaml_text import yaml_text
from services.whatif.manifests import load_documents
from shared.contracts.kube.kinds import PIPELINE_RUN
from shared.runtime.command import CommandError, Exit, unreadable


def load_rules(folder: Path) -> Rules:
    """Read and compile `<folder>/config.yaml`. Raises `CommandError`."""
    path = folder / CONFIGURATION_FILE
    try:
        return parse_rules(path.read_text(encoding="utf-8"), CelEngine())
    except (OSError, UnicodeDecodeError) as error:
        hint = f"give the folder in which the classifier's {CONFIGURATION_FILE} is"
        raise CommandError(str(path), unreadable(error), hint=hint) from error
    except RulesError as error:
        raise CommandError(str(path), str(error)) from error


def mutated_yaml(file: Path, config: Path) -> str:
    """The object as it would be created. Raises `CommandError`, with status 1 if the webhook refuses it."""
    rules = load_rules(config)
    documents = load_documents(file)
    if len(documents) != 1:
        hint = "write each object into a file of its own"
        raise CommandError(str(file), f"must hold one object, has {len(documents)}", hint=hint)
    source, given = documents[0]
    if not isinstance(given, dict):
        raise CommandError(source, "is no object")
    try:
        mutated = mutate(given, rules)
    except RefusedError as error:
        raise CommandError(
            source, f"refused with {error.code}: {error}", status=Exit.FAILED
        ) from error
    made = mutated.object
    if made.get("kind") == PIPELINE_RUN.kind:
        made = {**made, "status": made.get("status") or {}}  # As tekton-kueue prints it.
    return yaml_text(made)

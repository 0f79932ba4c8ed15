"""The classification rules: tekton-kueue's configuration, compiled.

What enters: the text of `config.yaml`, read again whenever the file changes.
What leaves: `Rules` for the webhook. A configuration that cannot be used changes nothing: the last good
one stays in force, also after a restart.
"""

from services.classifier.rules.holder import RulesHolder, follow_rules
from services.classifier.rules.parsing import CONFIGURATION_FILE, Rules, RulesError, parse_rules

__all__ = [
    "CONFIGURATION_FILE",
    "Rules",
    "RulesError",
    "RulesHolder",
    "follow_rules",
    "parse_rules",
]

"""The classification rules: tekton-kueue's configuration, compiled.

What enters: the text of `config.yaml`, read again whenever the file changes.
What leaves: `Rules`, for whoever tries them, and `holder` for the webhook. A configuration that cannot be
used changes nothing: the last good one stays in force, also after a restart.
"""

from services.classifier.rules.parsing import CONFIGURATION_FILE, Rules, RulesError, parse_rules

__all__ = [
    "CONFIGURATION_FILE",
    "Rules",
    "RulesError",
    "parse_rules",
]

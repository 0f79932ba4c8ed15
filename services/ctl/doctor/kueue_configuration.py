"""What of Kueue's Configuration has no effect, or cannot be read."""

from pathlib import Path

from services.ctl.doctor.findings import Finding
from shared.settings.configuration import ConfigurationError, read_configuration


def kueue_configuration(document: Path | None) -> list[Finding]:
    """Findings about the document that the services run with; none without one."""
    try:
        warnings = read_configuration(document).warnings()
    except ConfigurationError as error:
        advice = "correct it: no service starts with it"
        return [Finding(where="Configuration", problem=str(error), advice=advice)]
    where = f"Configuration {document}"
    advice = "take it out, or leave it if that is meant"
    return [
        Finding(where=where, problem=problem, advice=advice, wrong=False) for problem in warnings
    ]

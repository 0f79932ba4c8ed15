"""What of Kueue's Configuration has no effect, or cannot be read."""

from pathlib import Path

from services.ctl.doctor.findings import Finding


def kueue_configuration(document: Path | None) -> list[Finding]:
    """Findings about the document that the services run with; none without one."""
    if document is None:
        return []
    from shared.settings.configuration import (  # noqa: PLC0415
        ConfigurationError,
        read_configuration,
    )

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

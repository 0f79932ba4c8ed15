"""Structured logs: one JSON object a line, or columns for people."""

import logging
import sys
from contextlib import suppress
from typing import Any, Final, TextIO, cast

import structlog

from shared.telemetry.redaction import redacted

_SECRET_KEYS: Final = frozenset({"token", "password", "key", "secret", "otp", "id_rsa", "data"})


def _redact(
    _logger: Any, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Mask values whose name suggests a secret, and passwords in URLs. Callers should log neither."""
    for name in _SECRET_KEYS & event.keys():
        event[name] = "(redacted)"
    for name, value in event.items():
        if isinstance(value, str) and "@" in value:  # Else no URL has a password: this is cheap.
            event[name] = redacted(value)
    return event


class _StandardError:
    """Standard error as it is when a line is written; a line that cannot be written is dropped.

    A command that a test runs replaces it and closes its own at the end, whoever reads a pipe may go, and
    a process may have none: nothing of that may end the work that the line is about.
    """

    def write(self, text: str) -> None:
        with suppress(AttributeError, OSError, ValueError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(AttributeError, OSError, ValueError):
            sys.stderr.flush()

    def isatty(self) -> bool:
        with suppress(AttributeError, ValueError):
            return sys.stderr.isatty()
        return False


_STANDARD_ERROR: Final = cast(TextIO, _StandardError())


def configure_logging(*, service: str, level: str, format_: str, for_good: bool = True) -> None:
    """Send all log lines, also those of libraries, to standard error. Called once, by the host.

    `for_good`: loggers cache the configuration at their first use, which is faster.
    """
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if format_ == "json"
        else structlog.dev.ConsoleRenderer(colors=_STANDARD_ERROR.isatty())
    )
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    shown: list[Any] = [structlog.processors.format_exc_info, _redact, renderer]
    structlog.configure(
        processors=[*shared, *shown],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(file=_STANDARD_ERROR),
        cache_logger_on_first_use=for_good,
    )
    structlog.contextvars.bind_contextvars(service=service)
    formatter = structlog.stdlib.ProcessorFormatter(
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *shown],
        foreign_pre_chain=shared,
    )
    handler = logging.StreamHandler(_STANDARD_ERROR)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel("WARNING" if level != "debug" else "INFO")

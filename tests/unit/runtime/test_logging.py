"""A log line never ends the work that it is about."""

import io
import logging
import sys
from collections.abc import Callable
from typing import TextIO

import pytest
import structlog

from shared.telemetry.logging import configure_logging


def closed() -> TextIO:
    stream = io.StringIO()
    stream.close()
    return stream


class PipeThatNobodyReads(io.StringIO):
    def write(self, _text: str) -> int:
        raise BrokenPipeError


def none() -> None:
    """What Python has in its place where the process was started without."""


@pytest.mark.parametrize("gone", [closed, PipeThatNobodyReads, none])
@pytest.mark.parametrize("kept", [True, False], ids=["cached logger", "new logger"])
def test_line_is_dropped_while_standard_error_is_gone_and_written_once_it_is_back(
    monkeypatch: pytest.MonkeyPatch, gone: Callable[[], TextIO | None], kept: bool
) -> None:
    back = io.StringIO()
    monkeypatch.setattr(sys, "stderr", gone())
    configure_logging(service="quota", level="info", format_="json", for_good=kept)
    log = structlog.get_logger()

    log.error("said to nobody")
    logging.getLogger("nats").error("said to nobody")
    monkeypatch.setattr(sys, "stderr", back)
    log.error("said by us")
    logging.getLogger("nats").error("said by a library")

    assert "said by us" in back.getvalue()
    assert "said by a library" in back.getvalue()
    assert "said to nobody" not in back.getvalue()

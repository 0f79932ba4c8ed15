"""Finds what a view lists and does not give: nats-server passes over a message with damaged bytes."""

from collections.abc import Collection

import structlog
from nats.aio.client import Client

from shared.bus.nats.jetstream_api import MESSAGE_NOT_FOUND, PASSING, ApiError, Json, call
from shared.bus.port import DeniedError, UnavailableError
from shared.bus.streams import view_of

log = structlog.get_logger(__name__)


async def missed(
    nc: Client, log_name: str, filters: Collection[str], given: Collection[str]
) -> list[Json]:
    """Return the last messages, as the log has them, of subjects that the view lists and did not give.

    `given`: the subjects that a reader of the view was given. Who may not ask for the subjects of a view,
    as a spoke, is told of none. Raises `UnavailableError` while nobody can answer, as during an election.
    """
    try:
        subjects = sorted(await _listed(nc, view_of(log_name), filters) - {*given})
        found = [await _last_of(nc, log_name, subject) for subject in subjects]
    except (ApiError, DeniedError) as error:
        if isinstance(error, ApiError) and error.code in PASSING:
            raise UnavailableError(str(error)) from error
        log.info("cannot look for damage in a view", log=log_name, error=str(error))
        return []
    return [each for each in found if each is not None]


async def _listed(nc: Client, view: str, filters: Collection[str]) -> set[str]:
    found: set[str] = set()
    for each in filters or (">",):
        offset, total = 0, 1
        while offset < total:
            asked = {"subjects_filter": each, "offset": offset}
            page = await call(nc, f"STREAM.INFO.{view}", asked)
            listed = page["state"].get("subjects") or {}
            found |= listed.keys()
            offset, total = offset + len(listed), int(page.get("total", 0)) if listed else 0
    return found


async def _last_of(nc: Client, log_name: str, subject: str) -> Json | None:
    try:
        answer = await call(nc, f"STREAM.MSG.GET.{log_name}", {"last_by_subj": subject})
    except ApiError as error:
        if error.code != MESSAGE_NOT_FOUND:
            raise
        log.error("neither view nor log give a message that the view lists", subject=subject)
        return None
    message: Json = answer["message"]
    return message

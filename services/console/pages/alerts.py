"""The alerts that ring, for the overview.

`deploy/prometheus/rules.yaml` says when an alert rings, and Prometheus evaluates it. Where the console is
told of a Prometheus, it shows what rings there. Without one it shows those few alerts that the streams
and quota's own answer tell of, under the names that they have in the rules.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, Final

import aiohttp
import structlog

from services.console.pages.documents import Alert, AlertList
from services.console.pages.locations import spokes
from services.console.rows import admitted_at, cluster_queue_of
from services.console.view import View
from shared.bus.port import Bus, BusError, DeniedError
from shared.contracts import rpc
from shared.contracts.kube import kinds
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.reasons import NOT_FOR_QUOTA, workload_status
from shared.contracts.refs import QueueRef
from shared.contracts.subjects import Stream
from shared.telemetry.redaction import redacted

log = structlog.get_logger(__name__)

FRESH_SECONDS: Final = 10.0
"""How old an answer may be. All pages share it."""

WAIT_SECONDS: Final = 0.3
"""How long a page waits for a newer answer. Then it gets the one before, and asks again."""

ASK_SECONDS: Final = 5.0
"""How long Prometheus may take to answer, and then the streams."""

ANSWER_BYTES_MAX: Final = 4 << 20
ALERTS_MAX: Final = 50
"""Alerts that a page shows. Prometheus shows the others."""

TEXT_MAX: Final = 1000
"""Characters of each text of an alert of Prometheus."""

OURS: Final = "Sluicegate"
"""How the names of our alerts begin: a Prometheus has others, too."""

FULL: Final = 0.7
"""As in the rule SluicegateLogNearlyFull."""

STILL: Final = timedelta(minutes=15)
"""As in the rule SluicegateQueueStandsStill."""

_LOGS: Final = (Stream.ADMISSIONS, Stream.WORKLOADS)
"""Logs that refuse messages when they are full."""


class _UnreadError(Exception):
    """Prometheus gave no usable answer."""


class Alerts:
    """What rings, for one process. It looks only while somebody asks."""

    def __init__(self, *, view: View, bus: Bus, prometheus: str = "") -> None:
        self.fresh_seconds = FRESH_SECONDS
        self._view = view
        self._bus = bus
        self._prometheus = prometheus.rstrip("/")
        self._known: AlertList | None = None
        self._at = 0.0
        self._looking: asyncio.Task[None] | None = None
        self._silent_since: datetime | None = None
        """Since when quota did not answer; None: it did."""

        self._logged = ""

    def forget(self) -> None:
        """Drop what was read: no page is open."""
        self._known, self._silent_since = None, None

    async def firing(self) -> AlertList:
        """The alerts that fire. Incomplete: nothing is known yet, ask again."""
        if self._looking is None and (
            self._known is None or monotonic() - self._at >= self.fresh_seconds
        ):
            self._looking = asyncio.create_task(self._look())
        if self._looking is not None:
            await asyncio.wait({self._looking}, timeout=WAIT_SECONDS)
        return self._known or AlertList(items=[], source="streams", complete=False)

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(2 * ASK_SECONDS):
                self._known = await self._read()
        except TimeoutError:
            problem = "NATS does not answer in time"
            self._known = AlertList(items=[], source="streams", problem=problem)
        finally:
            self._at = monotonic()
            self._looking = None

    async def _read(self) -> AlertList:
        problem = ""
        if self._prometheus:
            try:
                found = await _firing(self._prometheus)
            except _UnreadError as error:
                problem = redacted(f"Prometheus at {self._prometheus} {error}")
                if problem != self._logged:
                    log.warning("cannot read which alerts ring", problem=problem)
                self._logged = problem
            else:
                self._logged = ""
                return AlertList(items=found[:ALERTS_MAX], source="prometheus")
        return await self._from_streams(problem)

    async def _from_streams(self, problem: str) -> AlertList:
        looks: tuple[Callable[[], Awaitable[list[Alert]]], ...] = (
            self._quota,
            self._logs,
            self._spokes,
        )
        found, problems = list(self._standing()), [problem] if problem else []
        for finds in looks:
            try:
                found += await finds()
            except BusError as error:
                problems.append(str(error))
        found.sort(key=lambda each: (each.severity != "critical", each.name, each.summary))
        return AlertList(items=found[:ALERTS_MAX], source="streams", problem="; ".join(problems))

    # --- what the streams tell ---------------------------------------------------------------------

    async def _quota(self) -> list[Alert]:
        """Whether quota has a leader. One question without an answer is a change of leader, two are not."""
        now = self._view.now()
        try:
            data = await self._bus.request(rpc.POSITIONS, b'{"limit":1}', timeout_seconds=2.0)
        except DeniedError:
            raise  # By the server: the users of this release are not rendered yet.
        except BusError:
            before, self._silent_since = self._silent_since, self._silent_since or now
            if before is None:
                return []
            summary = "No quota service leads, so nobody is admitted"
            return [_alert("SluicegateNobodyDecides", "critical", summary, before)]
        self._silent_since = None
        stopped = json.loads(data).get("stopped")
        if not stopped:
            return []
        return [_alert("SluicegateAdmissionHalted", "critical", f"Nobody is admitted: {stopped}")]

    async def _logs(self) -> list[Alert]:
        full = {name: (await self._bus.log_end(name)).fullness for name in _LOGS}
        return [
            _alert("SluicegateLogNearlyFull", "warning", f"The log {name} is {share:.0%} full")
            for name, share in full.items()
            if share > FULL
        ]

    async def _spokes(self) -> list[Alert]:
        configured = self._view.observed(kinds.MULTIKUEUE_CLUSTER)
        if not configured:
            return []
        return [
            _alert(
                "SluicegateSpokeLost",
                "warning",
                f"The spoke {each.name} is not connected: {each.message}",
                each.at,
            )
            for each in await spokes(self._bus, configured)
            if each.active is False
        ]

    def _standing(self) -> Iterator[Alert]:
        """ClusterQueues in which something waits for quota, while none was admitted for long."""
        oldest: dict[tuple[str, str], datetime] = {}
        admitted: dict[tuple[str, str], datetime] = {}
        for ident, state in self._view.states():
            _, admission = self._view.workload(ident) or (state, None)
            queue = state.cluster, cluster_queue_of(self._view, state, admission)
            status = workload_status(state.phase, None if admission is None else admission.state)
            if (at := admitted_at(state, admission)) is not None:
                admitted[queue] = max(admitted.get(queue, at), at)
            elif status == "PENDING" and not _is_held(state, admission):
                oldest[queue] = min(oldest.get(queue, state.created_at), state.created_at)
        for (cluster, name), since in sorted(oldest.items()):
            _, known = self._view.queue(QueueRef(cluster, "", name))
            begin = max(since, admitted.get((cluster, name), since)) + STILL
            if known is not None and known.active and begin <= self._view.now():
                summary = f"Workloads wait in {name}, and none was admitted"
                yield _alert("SluicegateQueueStandsStill", "warning", summary, begin)


def _is_held(state: WorkloadState, admission: Admission | None) -> bool:
    """Whether something else than quota keeps it from its admission."""
    return bool(state.inadmissible) or (admission is not None and admission.reason in NOT_FOR_QUOTA)


def _alert(name: str, severity: str, summary: str, since: datetime | None = None) -> Alert:
    return Alert(
        name=name,
        severity=severity,
        summary=summary,
        since=since,
        runbook=f"docs/runbooks/{name}.md",
    )


# --- what Prometheus tells -----------------------------------------------------------------------


_UNREADABLE: Final = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
)
"""What an answer of any shape raises: times that no clock shows, and lists in lists, too."""


async def _firing(url: str) -> list[Alert]:
    """Our alerts that ring there, critical ones first. Raises `_UnreadError`."""
    timeout = aiohttp.ClientTimeout(total=ASK_SECONDS)
    # Nothing else is asked than what the operator named, and nothing grows on its way in.
    plain = {"Accept-Encoding": "identity"}
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=plain, auto_decompress=False) as session,
            session.get(f"{url}/api/v1/alerts", allow_redirects=False) as response,
        ):
            status, body = response.status, bytearray()
            async for part in response.content.iter_any():
                body += part
                if len(body) > ANSWER_BYTES_MAX:
                    raise _UnreadError(f"gave more than {ANSWER_BYTES_MAX} bytes")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise _UnreadError(f"does not answer ({str(error) or type(error).__name__})") from error
    try:
        found = [alert for each in json.loads(body)["data"]["alerts"] if (alert := _of(each))]
    except _UNREADABLE as error:
        raise _UnreadError(f"gave no list of alerts (status {status})") from error
    return sorted(found, key=lambda each: (each.severity != "critical", each.name, each.summary))


def _of(alert: dict[str, Any]) -> Alert | None:
    """One of ours that rings; None for any other one."""
    labels, annotations = alert["labels"], alert.get("annotations") or {}
    name = str(labels.get("alertname", ""))
    if alert.get("state") != "firing" or not name.startswith(OURS):
        return None
    # Prometheus writes nanoseconds, of which Python reads six places.
    since = datetime.fromisoformat(alert["activeAt"]) if alert.get("activeAt") else None
    return Alert(
        name=name[:TEXT_MAX],
        severity=str(labels.get("severity", "warning"))[:TEXT_MAX],
        summary=str(annotations.get("summary") or name)[:TEXT_MAX],
        since=since.astimezone(UTC) if since is not None else None,
        runbook=str(annotations.get("runbook_url") or "")[:TEXT_MAX],
    )

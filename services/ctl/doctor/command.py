"""Runs all examinations and prints the findings."""

import asyncio
import importlib
import json
from dataclasses import asdict
from pathlib import Path

from services.ctl.connect.cluster import ClusterChoice, refused
from services.ctl.connect.reader import open_reader, utc_now
from services.ctl.doctor import bus, storage
from services.ctl.doctor.admission_checks import unanswered_checks
from services.ctl.doctor.configuration import KINDS, configuration
from services.ctl.doctor.egress import open_egress
from services.ctl.doctor.findings import Finding
from services.ctl.doctor.held_quota import held_quota
from services.ctl.doctor.kueue_configuration import kueue_configuration
from services.ctl.doctor.nodes import nodes
from services.ctl.get.command import read
from services.ctl.get.table import coloured, paint
from shared.bus.stream_reader import JetStreamError, StreamReader
from shared.contracts.subjects import Stream, observed_filter, subject_filter, synced_filter
from shared.runtime.command import CommandError, Exit

_INPUTS = (
    (Stream.WORKLOADS, subject_filter("workload")),
    (Stream.ADMISSIONS, subject_filter("admission")),
    (Stream.QUEUES, subject_filter("queue")),
    (Stream.SPOKES, subject_filter("spoke")),
    (Stream.OBSERVED, synced_filter()),
)


async def doctor(
    *,
    output: str,
    kubeconfig: Path | None,
    context: str | None = None,
    service_namespace: str,
    document: Path | None,
    url: str | None,
    directory: Path,
) -> int:
    """Print the findings; return the exit status. Raises `CommandError`."""
    if context is not None and kubeconfig is None:
        raise CommandError("--context", "needs --kubeconfig")
    cluster = ClusterChoice(kubeconfig=kubeconfig, context=context, directory=directory)
    async with open_reader(url, directory) as reader:
        looking = asyncio.ensure_future(_look_at_cluster(cluster, service_namespace))
        try:
            findings = await examine(reader)
            configs, room = await storage.declared(reader)
            lacking, volumes = await looking
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
    findings += lacking
    findings += kueue_configuration(document)
    rooms = {"the account of the streams": room} | volumes
    findings += storage.storage_findings(configs, rooms)
    findings.sort(key=lambda finding: not finding.wrong)
    wrong = sum(finding.wrong for finding in findings)
    if output == "json":
        print(json.dumps([asdict(finding) for finding in findings], indent=4))
    else:
        for finding in findings:
            print(_line(finding))
        print(f"{wrong} wrong, {len(findings) - wrong} to know of" if findings else "all is well")
    return Exit.FAILED if wrong else Exit.OK


async def examine(reader: StreamReader) -> list[Finding]:
    """All findings, those that are certainly wrong first."""
    found = await bus.streams(reader)
    try:
        inputs = [*_INPUTS, *((Stream.OBSERVED, observed_filter(kind)) for kind in KINDS)]
        snapshot = await read(reader, inputs)
        letters = await reader.now(Stream.DEAD, subject_filter("dead"))
    except JetStreamError:
        return found  # Without streams there is nothing else to examine.
    if not snapshot.synced:
        found.append(
            Finding(
                where="clusters",
                problem="no watcher has ever listed one",
                advice="start a watcher, and look at its log: it may lack permissions",
            )
        )
    # Who does not answer comes first: what nobody reads may come of that.
    found += await bus.quota_answers(reader)
    found += await bus.leases(reader, sorted(snapshot.synced))
    found += await bus.leaf_nodes(reader)
    found += await bus.consumers(reader)
    found += bus.dead_letters(letters)
    found += configuration(snapshot)
    found += nodes(snapshot)
    found += held_quota(snapshot, utc_now())
    found += unanswered_checks(snapshot, utc_now())
    return sorted(found, key=lambda finding: not finding.wrong)


async def _look_at_cluster(
    cluster: ClusterChoice, namespace: str
) -> tuple[list[Finding], dict[str, int]]:
    """What the services lack or may too much there, and the sizes of the volumes of NATS.

    Nothing without a kubeconfig. What is needed for it is imported while NATS is asked.
    """
    if cluster.kubeconfig is None:
        return [], {}
    await asyncio.to_thread(importlib.import_module, "shared.kube.client")
    from services.ctl.doctor.permissions import missing_permissions  # noqa: PLC0415
    from shared.kube.port import KubeError  # noqa: PLC0415

    kube = cluster.open()
    try:
        lacking = await missing_permissions(kube, namespace=namespace)
        lacking += await open_egress(kube, namespace=namespace)
        return lacking, await storage.volumes(kube, namespace=namespace)
    except KubeError as error:
        raise refused(f"--kubeconfig: {str(cluster.kubeconfig)!r}", error) from error
    finally:
        await kube.close()


def _line(finding: Finding) -> str:
    mark = "WRONG" if finding.wrong else "note "
    if coloured():
        mark = paint(mark, "red" if finding.wrong else "yellow")
    return f"{mark}  {finding.where}: {finding.problem}\n       {finding.advice}"

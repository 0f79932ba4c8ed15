"""Runs all examinations and prints what was found."""

import json
from dataclasses import asdict
from pathlib import Path

from services.ctl.connect.reader import current, kubeconfig_of, lookout
from services.ctl.doctor import bus
from services.ctl.doctor.configuration import KINDS, configuration
from services.ctl.doctor.findings import Finding
from services.ctl.doctor.holdings import holdings
from services.ctl.doctor.nodes import nodes
from services.ctl.get.command import read
from services.ctl.get.table import coloured, paint
from shared.bus.nats.stream_reader import JetStreamError, Look
from shared.contracts.subjects import observed_filter
from shared.runtime.command import CommandError, Exit

__all__ = ["doctor", "examine"]

_INPUTS = (
    ("WORKLOADS", "sluice.workload.>"),
    ("ADMISSIONS", "sluice.admission.>"),
    ("QUEUES", "sluice.queue.>"),
    ("SPOKES", "sluice.spoke.>"),
    ("OBSERVED", "sluice.observed.*._._.synced"),
)


async def doctor(
    *,
    output: str,
    kubeconfig: Path | None,
    service_namespace: str,
    url: str | None,
    directory: Path,
) -> int:
    """Print the findings; return the exit status."""
    async with lookout(url, directory) as look:
        findings = await examine(look)
    if kubeconfig is not None:
        findings += await _rights(kubeconfig_of(kubeconfig, directory), service_namespace)
        findings.sort(key=lambda finding: not finding.wrong)
    wrong = sum(finding.wrong for finding in findings)
    if output == "json":
        print(json.dumps([asdict(finding) for finding in findings], indent=4))
    else:
        for finding in findings:
            print(_line(finding))
        print(f"{wrong} wrong, {len(findings) - wrong} to know of" if findings else "all is well")
    return Exit.FAILED if wrong else Exit.OK


async def examine(look: Look) -> list[Finding]:
    """Everything that is not as it should be; what is wrong comes first."""
    found = await bus.streams(look)
    try:
        inputs = [*_INPUTS, *(("OBSERVED", observed_filter(kind)) for kind in KINDS)]
        picture = await read(look, inputs)
        letters = await look.now("DEAD")
    except JetStreamError:
        return found  # Without the streams, which is said already, there is nothing to examine.
    if not picture.synced:
        found.append(
            Finding(
                where="clusters",
                problem="no watcher has ever listed one",
                advice="start a watcher, and look at its log: it may lack permissions",
            )
        )
    found += await bus.consumers(look)
    found += await bus.leases(look, sorted(picture.synced))
    found += await bus.quota_answers(look)
    found += bus.dead_letters(letters)
    found += configuration(picture)
    found += nodes(picture)
    found += holdings(picture, current())
    return sorted(found, key=lambda finding: not finding.wrong)


async def _rights(kubeconfig: Path, namespace: str) -> list[Finding]:
    from services.ctl.doctor.rights import rights  # noqa: PLC0415
    from shared.kube.client import HttpKube  # noqa: PLC0415
    from shared.kube.port import KubeError  # noqa: PLC0415

    kube = HttpKube.from_kubeconfig(str(kubeconfig))
    try:
        return await rights(kube, namespace=namespace)
    except KubeError as error:
        raise CommandError(str(kubeconfig), str(error), status=Exit.UNREACHABLE) from error
    finally:
        await kube.close()


def _line(finding: Finding) -> str:
    mark = "WRONG" if finding.wrong else "note "
    if coloured():
        mark = paint(mark, "red" if finding.wrong else "yellow")
    return f"{mark}  {finding.where}: {finding.problem}\n       {finding.advice}"

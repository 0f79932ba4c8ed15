"""What a real installation reaches: clouds, SSH hosts, and the one-time password service."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from secrets import token_bytes
from typing import Final
from urllib.parse import urlsplit

import structlog

from services.provisioner.config.credentials import Secrets
from services.provisioner.hosts.access import Keys
from services.provisioner.hosts.port import Hosts
from services.provisioner.hosts.ssh import SshHosts
from services.provisioner.keys.one_time import OneTimeKeys
from services.provisioner.keys.one_time_server import OneTimeServer
from services.provisioner.providers import aws, ibm_power, ibm_vpc
from services.provisioner.providers.port import Provider
from services.provisioner.providers.registry import Registry, installed_kinds
from services.provisioner.settings import ProvisionerSettings
from shared.bus.port import Bus, BusError
from shared.runtime.certificates import CertificateFolder, ReloadingContext

__all__ = ["Outside", "outside"]

log = structlog.get_logger(__name__)

KINDS: Final = {"aws": aws.KIND, "ibmz": ibm_vpc.KIND, "ibmp": ibm_power.KIND}
FOLLOW_SECONDS: Final = 10.0
FORGET_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """The ways out of the process."""

    registry: Registry
    hosts: Hosts | None
    keys: Keys | None
    beside: Callable[[], Awaitable[None]] | None
    """Serves keys from the start, whoever holds the lease."""


def outside(
    settings: ProvisionerSettings, *, bus: Bus, fake: Provider, now: Callable[[], datetime]
) -> Outside:
    """What `settings` allow. Opens nothing."""
    if settings.secrets_path is None:
        log.warning("no folder of secrets: hosts are pretended, and there are no clouds")
        return Outside(registry=Registry({"fake": fake}), hosts=None, keys=None, beside=None)
    secrets = Secrets(settings.secrets_path)
    kinds = {**KINDS, **installed_kinds()}
    registry = Registry({"fake": fake}, kinds=kinds, secrets=secrets)
    hosts = SshHosts(secrets)
    if not settings.otp_url:
        return Outside(registry=registry, hosts=hosts, keys=None, beside=None)
    name = urlsplit(settings.otp_url).hostname or "localhost"
    folder = CertificateFolder(settings.otp_path, [name])
    keys = OneTimeKeys(
        cluster=settings.cluster,
        bus=bus,
        url=settings.otp_url,
        authority=lambda: folder.ca_bundle().decode(),
        life_seconds=settings.otp_seconds,
        now=now,
        entropy=token_bytes,
    )

    async def serve() -> None:
        folder.ensure(now())
        tls = ReloadingContext(folder.certificate, folder.key)
        server = OneTimeServer(
            keys, host=settings.otp_host, port=settings.otp_port, tls=lambda: tls.context
        )
        port = await server.start()
        log.info("one-time password service", port=port, url=settings.otp_url)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_follow(folder, tls, now))
                group.create_task(_forget(keys))
        finally:
            await server.stop()

    return Outside(registry=registry, hosts=hosts, keys=keys, beside=serve)


async def _follow(
    folder: CertificateFolder, tls: ReloadingContext, now: Callable[[], datetime]
) -> None:
    """Renew and take up certificates."""
    while True:
        await asyncio.sleep(FOLLOW_SECONDS)
        try:
            folder.ensure(now())
        except (OSError, ValueError) as error:
            log.error("cannot renew the serving certificate", error=str(error))
        if tls.refresh():
            log.info("took up a new serving certificate")


async def _forget(keys: OneTimeKeys) -> None:
    """Drop keys that nobody fetched in time."""
    while True:
        await asyncio.sleep(FORGET_SECONDS)
        try:
            dropped = await keys.forget_expired()
        except BusError as error:
            log.warning("expired keys not dropped yet", error=str(error))
            continue
        if dropped:
            log.info("keys were not fetched in time", count=dropped)

"""Builds what a real installation reaches: clouds, SSH hosts, and the one-time password service."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from secrets import token_bytes
from typing import Final
from urllib.parse import urlsplit

import structlog

from services.provisioner.config.credentials import Secrets
from services.provisioner.config.provider_types import FAKE
from services.provisioner.hosts.access import KeyDelivery
from services.provisioner.hosts.port import Hosts
from services.provisioner.keys.one_time import OneTimeKeyStore
from services.provisioner.keys.one_time_server import OneTimeKeyServer
from services.provisioner.metrics import Metrics
from services.provisioner.providers.port import Provider
from services.provisioner.providers.registry import Registry, installed_kinds, shipped_kinds
from services.provisioner.settings import ProvisionerSettings
from shared.bus.port import Bus, BusError
from shared.runtime.certificates import CertificateFolder, ReloadingContext

log = structlog.get_logger(__name__)

CERTIFICATE_SECONDS: Final = 10.0
EXPIRY_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """The outside of one process."""

    registry: Registry
    hosts: Hosts | None = None
    keys: KeyDelivery | None = None
    key_service: Callable[[], Awaitable[None]] | None = None
    """Serves keys for as long as the process runs, with or without the lease."""


def build_adapters(
    settings: ProvisionerSettings,
    *,
    bus: Bus,
    fake: Provider,
    now: Callable[[], datetime],
    metrics: Metrics,
) -> Adapters:
    """The adapters that `settings` allow. Opens no connection."""
    if settings.secrets_path is None:
        log.warning("no folder of secrets: hosts are not entered, and there are no clouds")
        return Adapters(registry=Registry({FAKE: fake}))
    # Only here: a library that many installations do not need.
    from services.provisioner.hosts.ssh import SshHosts  # noqa: PLC0415

    secrets = Secrets(settings.secrets_path)
    kinds = {**shipped_kinds(), **installed_kinds()}
    registry = Registry({FAKE: fake}, kinds=kinds, secrets=secrets)
    hosts = SshHosts(secrets)
    if not settings.otp_url:
        return Adapters(registry=registry, hosts=hosts)
    name = urlsplit(settings.otp_url).hostname or "localhost"
    folder = CertificateFolder(settings.otp_path, [name])
    keys = OneTimeKeyStore(
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
        server = OneTimeKeyServer(
            keys,
            host=settings.otp_host,
            port=settings.otp_port,
            tls=lambda: tls.context,
            per_address=settings.otp_connections_per_address,
            on_refused=metrics.key_refused,
        )
        port = await server.start()
        log.info("the service of one-time passwords listens", port=port, url=settings.otp_url)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_renew_certificate(folder, tls, now))
                group.create_task(_delete_expired(keys))
        finally:
            await server.stop()

    return Adapters(registry=registry, hosts=hosts, keys=keys, key_service=serve)


async def _renew_certificate(
    folder: CertificateFolder, tls: ReloadingContext, now: Callable[[], datetime]
) -> None:
    while True:
        await asyncio.sleep(CERTIFICATE_SECONDS)
        try:
            folder.ensure(now())
        except (OSError, ValueError) as error:
            log.error("cannot renew the serving certificate", error=str(error))
        if tls.refresh():
            log.info("loaded a new serving certificate")


async def _delete_expired(keys: OneTimeKeyStore) -> None:
    while True:
        await asyncio.sleep(EXPIRY_SECONDS)
        try:
            dropped = await keys.delete_expired()
        except BusError as error:
            log.warning("expired keys not dropped yet", error=str(error))
            continue
        if dropped:
            log.info("keys were not fetched in time", count=dropped)

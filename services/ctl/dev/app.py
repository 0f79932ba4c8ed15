"""`sluice dev`: runs the whole system on this machine, and stops it completely."""

import asyncio
import fcntl
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from services.ctl.connect.cluster import check_kubeconfig, refused
from services.ctl.connect.reader import STATE_FILE, unreachable
from services.ctl.dev.disk import watch_disk
from services.ctl.dev.readiness import HOST, answers, listens
from services.ctl.dev.secure import Secured, secure
from services.ctl.dev.signals import until_signalled
from services.ctl.dev.spokes import Spoke, start_spokes
from services.ctl.dev.supervisor import ChildSpec, Supervisor
from services.ctl.dev.wrong_input import checked_input, refuse_ca_for_plain_text
from services.ctl.programs import SERVICES, Program
from services.ctl.setup.apply import apply_manifests
from services.ctl.setup.definitions import apply_definitions, disable_conversion, enable_conversion
from services.ctl.setup.registration import register, unregister
from services.ctl.setup.spokes import hub_manifests, spoke_names
from services.ctl.setup.webhook import pods_manifest, validating_manifest, webhook_manifest
from services.quota.settings import QuotaSettings
from shared.bus.admin.apply import apply_at
from shared.bus.admin.permissions import HUB
from shared.bus.embedded import SERVER_ENVIRONMENT, EmbeddedServerError, server_command
from shared.bus.port import BusError
from shared.bus.streams import DATA
from shared.contracts.simulation import PATCHER_CONTEXT
from shared.contracts.webhook import CONVERT_PATH, MUTATE_PATH, VALIDATE_PATH
from shared.integrations import opted_documents
from shared.kube.client import HttpKube
from shared.kube.config import from_kubeconfig
from shared.kube.port import KubeError
from shared.runtime.command import CommandError, Exit, environment_error
from shared.settings.access import OPEN, Access
from shared.settings.base import ServiceSettings
from shared.settings.configuration import read_configuration
from shared.settings.ports import reserve_port
from shared.telemetry.redaction import redacted

EXAMPLE: Final = Path(__file__).parents[3] / "deploy" / "examples" / "konflux"
"""The manifests and rules that are used if none are named."""

CONSOLE_FILE: Final = "console.url"
"""Holds the URL of the console: `curl "$(cat .sluice/console.url)api/v1/queues"`."""

BROKER: Final = "nats-server"
HEARD_SECONDS: Final = 1.0
"""How long an API server may go on calling a webhook that was unregistered."""

TAKE_BACK_SECONDS: Final = 5.0
VIEWER: Final = "viewer"
DECLARER: Final = "bus"
"""The NATS user that may declare streams."""

START_SECONDS: Final = 60.0
SIMULATED_BOOT_SECONDS: Final = 60.0
"""How long a machine of the fake provider boots, in simulated time."""

REASON_DELAY_SECONDS: Final = 0.1
"""Unless the setting says otherwise. Here nobody minds one write more, and somebody may look on."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DevOptions:
    """What to start, and where to keep its files."""

    directory: Path = Path(".sluice")
    """Logs, certificates, the broker's data, the simulator's kubeconfig."""

    nats_url: str | None = None
    """A server that runs already; None starts one."""

    kubeconfig: Path | None = None
    """An existing cluster; None simulates one."""

    context: str | None = None
    """Of the kubeconfig; None is its current one."""

    manifests: tuple[Path, ...] = ()
    rules: Path = EXAMPLE / "classifier"
    """Folder with the classifier's `config.yaml`."""

    webhook: bool | None = None
    """Whether to register the webhook; None means only in a simulated cluster."""

    speed: float = 60.0
    """Speed of simulated time."""

    seed: int = 0
    spokes: int = 0
    """How many simulated spokes to start beside the hub."""

    processes: bool = True
    """One process for each service; False: one for all of them."""

    environment: Callable[[Program], Mapping[str, str]] = lambda _program: {}
    """What a program gets beside what all have: tests give each a ServiceAccount of its own."""

    secure: bool = False
    """TLS, and a NATS user with least permissions for each service. Only with a server that we start."""

    echo: Callable[[str, str], None] | None = None
    """Called with every line that a child writes."""

    progress: Say | None = None
    """Called with what is started, who is ready, and who is stopping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A running system."""

    nats_url: str
    kubeconfig: Path
    context: str | None = None
    api_url: str | None
    """Of the simulator."""

    console_url: str
    logs: Path
    supervisor: Supervisor
    secured: Secured | None = None
    spokes: list[Spoke] = field(default_factory=list)

    @property
    def access(self) -> Access:
        """The credentials of a command: those of the user that only reads."""
        return OPEN if self.secured is None else self.secured.access(VIEWER)

    def kube(self) -> HttpKube:
        """A client of the cluster. Close it."""
        return HttpKube(from_kubeconfig(str(self.kubeconfig), self.context))


@asynccontextmanager
async def running(options: DevOptions, say: Say) -> AsyncIterator[Running]:
    """Start everything, and stop everything at the end. Raises `CommandError` if something does not start."""
    shipped = (EXAMPLE, EXAMPLE / "classifier")
    manifests = checked_input(options.manifests, options.rules, shipped=shipped)
    if options.nats_url is None and not options.secure:
        refuse_ca_for_plain_text()
    if options.kubeconfig is not None:
        check_kubeconfig(options.kubeconfig, options.context)
    elif options.context is not None:
        raise CommandError("--context", "needs --kubeconfig: a simulated cluster has no other")
    directory = options.directory.resolve()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        hint = "choose another folder with --directory"
        refusal = CommandError(str(directory), (error.strerror or str(error)).lower(), hint=hint)
        raise environment_error(error, str(directory)) or refusal from error
    with _exclusive(directory):
        starter = _Starter(options, directory, say)
        has_failed = False
        try:
            kubeconfig, api_url = starter.cluster()
            nats_url = await starter.broker()
            await starter.started()
            system = Running(
                nats_url=nats_url,
                kubeconfig=kubeconfig,
                context=options.context,
                api_url=api_url,
                console_url=f"http://{HOST}:{starter.console_port}/",
                logs=directory / "logs",
                supervisor=starter.supervisor,
                secured=starter.secured,
            )
            kube = system.kube()
            try:
                if options.kubeconfig is not None:
                    if await _unregistered_leftover(kube):
                        await asyncio.sleep(HEARD_SECONDS)
                    await apply_definitions(kube, say)
                spokes = hub_manifests(options.spokes) if options.spokes else []
                await apply_manifests(kube, [*manifests, *spokes])
                await starter.services(nats_url, kubeconfig, kube)
                system.spokes.extend(await starter.spokes(nats_url))
            finally:
                await kube.close()
            _write_state(directory, system)
            yield system
        except CommandError:
            has_failed = True
            raise
        finally:
            if not has_failed:
                say("stopping")
            if options.kubeconfig is not None and options.kubeconfig.is_file():
                await _unregister(options.kubeconfig, options.context, say)
            await starter.supervisor.stop()
            for name in (STATE_FILE, CONSOLE_FILE):
                (directory / name).unlink(missing_ok=True)


class _Starter:
    """Starts the parts in order."""

    def __init__(self, options: DevOptions, directory: Path, say: Say) -> None:
        self._options = options
        self._directory = directory
        self._certificates = directory / "certificates"
        logs = directory / "logs"
        shutil.rmtree(logs, ignore_errors=True)
        self._progress = options.progress or (lambda _text: None)
        self.supervisor = Supervisor(
            logs=logs, say=say, echo=options.echo, progress=options.progress
        )
        self.secured: Secured | None = None
        self.console_port = reserve_port()

    async def broker(self) -> str:
        """Start nats-server if there is none, and apply the streams; return its URL."""
        url = self._options.nats_url
        if url is not None and self._options.secure:
            raise CommandError(url, "is a server of yours", hint="--secure starts one of its own")
        if url is None:
            data = self._directory / "nats"
            if self._options.kubeconfig is None:
                # A simulated cluster starts empty, so decisions about an earlier one must go.
                shutil.rmtree(data, ignore_errors=True)
            data.mkdir(exist_ok=True)
            port = reserve_port()
            url = f"nats://{HOST}:{port}"
            if self._options.secure:
                folder, spokes = self._directory / "nats-users", spoke_names(self._options.spokes)
                self.secured = secure(folder, spokes, datetime.now(UTC), url=url)
            self._progress("starting nats-server")
            try:
                config = DATA / "server.conf" if self.secured is None else self.secured.config
                argv = server_command(data, port=port, config=config)
            except EmbeddedServerError as error:
                raise CommandError(BROKER, str(error), hint="or set NATS_URL") from error
            self.supervisor.start(
                ChildSpec(
                    name=BROKER,
                    argv=argv,
                    environment=SERVER_ENVIRONMENT,
                    ready=listens(port),
                    stop_order=2,
                )
            )
            await self.supervisor.wait_ready([BROKER], timeout_seconds=START_SECONDS)
        await _apply_streams(url, self.secured.access(DECLARER) if self.secured else OPEN)
        return url

    def _programs(self) -> tuple[Program, ...]:
        """What to start as processes."""
        if not self._options.processes:
            self._progress("starting all services in one process")
            return (Program.ALL,)
        # If traces are collected, the tracer has to send them.
        traced = ServiceSettings().otlp_endpoint
        programs = (*SERVICES, Program.PAIRS, *((Program.TRACER,) if traced else ()))
        self._progress(f"starting {len(programs)} services")
        return programs

    def _keys(self, program: Program) -> dict[str, str]:
        if program is not Program.ALL or self.secured is None:
            return self._credentials(program.value)
        return {**self.secured.certificates(), "SLUICE_NATS_NKEYS": str(self.secured.folder)}

    def _credentials(self, user: str) -> dict[str, str]:
        """Environment variables with which a child speaks to NATS as `user`."""
        return {} if self.secured is None else self.secured.environment(user)

    def cluster(self) -> tuple[Path, str | None]:
        """Start the simulator if there is no cluster; return the kubeconfig and the simulator's URL.

        The simulator is ready when `started` returns.
        """
        options = self._options
        if options.kubeconfig is not None:
            return options.kubeconfig.resolve(), None
        name, port = Program.SIMULATOR.value, reserve_port()
        kubeconfig = self._directory / "kubeconfig"
        kubeconfig.unlink(missing_ok=True)
        # The journal serves restarts of the simulator within one `sluice dev`, not later ones.
        journal = self._directory / "simulator.jsonl"
        journal.unlink(missing_ok=True)
        arguments = (
            *("--journal", str(journal)),
            *("--port", str(port), "--kubeconfig-out", str(kubeconfig)),
            *("--speed", f"{options.speed:g}", "--seed", str(options.seed)),
        )
        self.supervisor.start(
            ChildSpec(
                name=name,
                argv=(*_PROGRAM, name, *arguments),
                ready=answers(port),
                stop_order=1,
            )
        )
        self._progress("starting a simulated cluster")
        return kubeconfig, f"http://{HOST}:{port}"

    async def started(self) -> None:
        """Wait until the simulator is ready, if there is one."""
        if self._options.kubeconfig is None:
            simulator = Program.SIMULATOR.value
            await self.supervisor.wait_ready([simulator], timeout_seconds=START_SECONDS)

    async def services(self, nats_url: str, kubeconfig: Path, kube: HttpKube) -> None:
        """Start all services, register the webhook, and return when all are ready."""
        webhook_port = reserve_port()
        common = self._environment(nats_url, kubeconfig, webhook_port)
        programs = self._programs()
        for program in programs:
            port = reserve_port()
            self.supervisor.start(
                ChildSpec(
                    name=program.value,
                    argv=(*_PROGRAM, program.value),
                    environment={
                        **common,
                        **self._keys(program),
                        **self._user(program),
                        "SLUICE_HEALTH_PORT": str(port),
                        **self._options.environment(program),
                    },
                    ready=answers(port),
                )
            )
        names = [program.value for program in programs]
        await self.supervisor.wait_ready(names, timeout_seconds=START_SECONDS)
        webhook = self._options.webhook
        if webhook if webhook is not None else self._options.kubeconfig is None:
            await self._register_webhook(kube, webhook_port)

    def _user(self, program: Program) -> dict[str, str]:
        """Environment variables by which a patcher has its own user, if the cluster is a simulated one."""
        if self._options.kubeconfig is not None:
            return {}
        match program:
            case Program.PATCHER:
                return {"SLUICE_KUBE_CONTEXT": PATCHER_CONTEXT}
            case Program.ALL:
                return {"SLUICE_PATCHER_CONTEXT": PATCHER_CONTEXT}
            case _:
                return {}

    def _environment(self, nats_url: str, kubeconfig: Path, webhook_port: int) -> dict[str, str]:
        """Environment variables that all services have in common."""
        common = {
            "SLUICE_NATS_URL": nats_url,
            "SLUICE_KUBECONFIG": str(kubeconfig),
            "SLUICE_INSTANCE": "dev",
            "SLUICE_CLASSIFIER_CONFIG": str(self._options.rules.resolve()),
            "SLUICE_WEBHOOK_PORT": str(webhook_port),
            "SLUICE_WEBHOOK_CERTIFICATES": str(self._certificates),
            "SLUICE_FAKE_BOOT_SECONDS": f"{SIMULATED_BOOT_SECONDS / self._options.speed:g}",
            "SLUICE_CONSOLE_PORT": str(self.console_port),
            "SLUICE_SPOKE_SECRETS": str(self._directory / "spokes"),
        }
        if "reason_delay_seconds" not in QuotaSettings().model_fields_set:
            common["SLUICE_REASON_DELAY_SECONDS"] = f"{REASON_DELAY_SECONDS:g}"
        # Who starts a job by hand is not refused here, and in an existing cluster has the patcher's name.
        common["SLUICE_PATCHER_USERS"] = "[]"
        if self._options.context is not None:
            common["SLUICE_KUBE_CONTEXT"] = self._options.context
        if self.secured is not None:
            common["SLUICE_SPOKE_KEYS"] = str(self.secured.folder)
        if self._options.kubeconfig is None:
            # A simulated cluster has no users with tokens, and no secrets.
            common["SLUICE_CONSOLE_AUTHORIZATION"] = "none"
        return common

    async def _register_webhook(self, kube: HttpKube, port: int) -> None:
        url = f"https://{HOST}:{port}"
        authority = (self._certificates / "ca.crt").read_bytes()
        mutating = webhook_manifest(url=f"{url}{MUTATE_PATH}", authority=authority)
        # In a simulated cluster nobody else writes statuses, and the patcher has a user of its own.
        validating = validating_manifest(
            url=f"{url}{VALIDATE_PATH}",
            authority=authority,
            statuses=self._options.kubeconfig is not None,
        )
        manifests = [mutating, validating]
        configuration = read_configuration(ServiceSettings().configuration)
        if any(opted_documents(configuration.integrations.frameworks or ())):
            manifests.append(pods_manifest(url=f"{url}{MUTATE_PATH}", authority=authority))
        await register(kube, manifests)
        if self._options.kubeconfig is not None:
            await enable_conversion(kube, url=f"{url}{CONVERT_PATH}", authority=authority)

    async def spokes(self, nats_url: str) -> list[Spoke]:
        """Start the simulated spokes."""
        return await start_spokes(
            self._options.spokes,
            supervisor=self.supervisor,
            directory=self._directory,
            environment=lambda spoke: {
                "SLUICE_NATS_URL": nats_url,
                **self._credentials(f"spoke-{spoke}"),
            },
            answers=answers,
            speed=self._options.speed,
            seed=self._options.seed,
        )


_PROGRAM: Final = (sys.executable, "-m", "services.ctl.main", "run")


async def _apply_streams(url: str, access: Access = OPEN) -> None:
    """Make the streams what they should be. Raises `CommandError`."""
    try:
        # Without users each service makes its own durables.
        cluster = None if access == OPEN else HUB
        report = await apply_at(url, access=access, cluster=cluster)
    except BusError as error:
        raise unreachable(url, error) from error
    if not report.ok:
        refused = "; ".join(str(c) for c in report.changes if c.action == "refused")
        raise CommandError(url, refused, status=Exit.FAILED)


async def _unregistered_leftover(kube: HttpKube) -> bool:
    try:
        return await unregister(kube)
    except KubeError as error:
        raise refused("the cluster", error) from error


async def _unregister(kubeconfig: Path, context: str | None, say: Say) -> None:
    """Leave the cluster without our webhooks."""
    kube = HttpKube(from_kubeconfig(str(kubeconfig), context), call_seconds=TAKE_BACK_SECONDS)
    try:
        if await unregister(kube):
            await disable_conversion(kube)
    except KubeError as error:
        say(f"nobody knows whether the webhook is still registered: {error}")
    finally:
        await kube.close()


@contextmanager
def _exclusive(directory: Path) -> Iterator[None]:
    """Lock the folder: two systems in it would take each other's ports and data."""
    with (directory / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise CommandError(
                str(directory),
                "another `sluice dev` or `sluice demo` uses it",
                hint="stop that one, or choose another folder with --directory",
            ) from error
        yield


def _write_state(directory: Path, system: Running) -> None:
    state = {
        "pid": os.getpid(),
        "nats_url": system.nats_url,
        "kubeconfig": str(system.kubeconfig),
        "context": system.context,
        "nats_access": system.secured.environment(VIEWER) if system.secured else {},
        "children": {name: system.supervisor.pid(name) for name in system.supervisor.names},
    }
    (directory / STATE_FILE).write_text(json.dumps(state, indent=2))
    (directory / CONSOLE_FILE).write_text(system.console_url)


async def serve(options: DevOptions, say: Say) -> int:
    """Run `sluice dev` until a signal comes, and print where everything is."""

    async def forever() -> int:
        async with running(options, say) as system:
            for line in addresses(system):
                say(line)
            await watch_disk(options.directory, say)
        return Exit.OK

    return await until_signalled(forever(), terminated=Exit.OK)


def addresses(system: Running) -> list[str]:
    """Lines that say where everything is."""
    lines = [f"NATS at {redacted(system.nats_url)}", f"kubeconfig {system.kubeconfig}"]
    if system.api_url is not None:
        lines += [f"kubeconfig of {spoke.name}: {spoke.kubeconfig}" for spoke in system.spokes]
        lines.append(f"simulated cluster at {system.api_url} (kubectl --server {system.api_url} …)")
    lines += [f"console at {system.console_url}", f"logs in {system.logs}"]
    return [*lines, "ready; Ctrl-C stops everything"]

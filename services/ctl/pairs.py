"""`sluice run pairs`: runs watcher and patcher for each spoke of which the hub knows how it is reached.

A MultiKueueCluster without a source is a spoke whose own pair connects to the hub. One with a kubeconfig,
or with a ClusterProfile, is served from here, as Kueue would: by two processes with no more rights on the
bus than a spoke's own pair. A problem that keeps them from running is published; the dispatcher writes it
into the cluster's status.
"""

import asyncio
import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import structlog
from pydantic import Field

from services.ctl.cluster_profiles import PLUGIN_WRAPPER, ProfileError, kubeconfig_of
from services.ctl.dev.supervisor import ChildSpec, Supervisor
from services.ctl.programs import Program
from services.ctl.setup.permissions import key_file
from shared.bus.follow import follow, recall
from shared.bus.port import Bus, BusError, Entry
from shared.contracts.kube.bodies import annotations_of, spec_of
from shared.contracts.kube.kinds import CLUSTER_PROFILE, MULTIKUEUE_CLUSTER
from shared.contracts.kube.names import SPOKE_QUOTA
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.spokes import PairState
from shared.contracts.subjects import observed_filter, subject_filter
from shared.kube.config import from_kubeconfig
from shared.kube.port import RefusedError
from shared.runtime.command import print_line
from shared.runtime.host import run_service
from shared.runtime.service import NO_OVERRIDES, Overrides, Parts
from shared.runtime.service import Program as ServiceProgram
from shared.settings.access import VARIABLES
from shared.settings.base import ServiceSettings
from shared.settings.cluster_profiles import AccessProvider
from shared.settings.configuration import read_configuration

log = structlog.get_logger(__name__)

PROGRAMS: Final = (Program.WATCHER, Program.PATCHER)
SPOKE_QUOTAS: Final = ("hub", "kueue")
"""Values of the annotation `SPOKE_QUOTA`, the default first."""

PLUGIN_SECONDS: Final = 30.0
"""How long a plugin may take to give credentials: the other spokes wait."""

KUBECONFIG: Final = "kubeconfig"
"""Key in the Secret, as in Kueue."""


class PairSettings(ServiceSettings):
    """Read once, at start, from `SLUICE_…` environment variables."""

    spoke_secrets: Path = Path("/etc/sluicegate/spokes")
    """Folder with the Secrets that MultiKueueClusters name, each a folder with the file `kubeconfig`."""

    profiles_namespace: str = "sluicegate"
    """Namespace of the ClusterProfiles that MultiKueueClusters name. Kueue has its own for them."""

    spoke_keys: Path = Path("/etc/sluicegate/spoke-keys")
    """Folder with the keys `spoke-<name>.nk` of the bus, as `sluice bus permissions` makes them. They
    are needed if the bus asks for keys, which it does if we have one ourselves."""

    again_seconds: Annotated[float, Field(gt=0)] = 60.0
    """After which a kubeconfig is tried again that gave no credentials."""

    look_seconds: Annotated[float, Field(gt=0)] = 5.0
    """How often the files are read again: a renewed kubeconfig means a new pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _DesiredPair:
    """A pair that has to run."""

    kubeconfig: Path
    digest: str
    """SHA-256 of the kubeconfig."""

    quota: str
    """Who admits in that cluster: the value of `SPOKE_QUOTA`."""

    key: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """What a MultiKueueCluster says about its cluster."""

    reached: Mapping[str, Any]
    """`spec.clusterSource`: how the cluster is reached."""

    quota: str
    """The value of `SPOKE_QUOTA`, whatever it is; `hub` if there is none."""


class _UnusableError(Exception):
    """A problem that keeps a pair from running."""


class Pairs:
    """Starts and stops pairs as MultiKueueClusters come and go."""

    def __init__(
        self,
        *,
        settings: PairSettings,
        bus: Bus,
        supervisor: Supervisor,
        now: Callable[[], datetime],
        providers: Sequence[AccessProvider] = (),
    ) -> None:
        """`providers`: of credentials for the clusters that ClusterProfiles describe."""
        self._settings = settings
        self._made: Path | None = None
        """Where the kubeconfigs are that are made of ClusterProfiles, while this runs."""

        self._providers = tuple(providers)
        self._profiles: dict[str, Mapping[str, Any]] = {}
        """The ClusterProfiles in the settings' namespace, by name."""

        self._bus = bus
        self._supervisor = supervisor
        self._now = now
        self._sources: dict[str, _Source] = {}
        """By cluster, for those that say how they are reached."""

        self._checked: dict[Path, tuple[str, str | None, float]] = {}
        """File to the digest of what it said, what is wrong with that, and until when that is believed."""

        self._running: dict[str, _DesiredPair] = {}
        self._published: dict[str, str] = {}
        self._synced = False
        self._updated = asyncio.Event()

    def ready(self) -> str | None:
        """None once all MultiKueueClusters are read."""
        return None if self._synced else "reading MultiKueueClusters"

    async def run(self) -> None:
        """Keep the pairs running until cancelled."""
        # An earlier process may have published problems that are solved by now.
        published = subject_filter("pair", self._settings.cluster)
        await recall(self._bus, {PairState: self._observe_published}, filters=[published])
        with TemporaryDirectory(prefix="sluice-pairs-") as made:
            self._made = Path(made)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._follow())
                    group.create_task(self._reconcile_forever())
            finally:
                await self._supervisor.stop()

    def _observe_published(self, state: PairState, _entry: Entry) -> None:
        self._published[state.spoke] = state.problem

    async def _follow(self) -> None:
        await follow(
            self._bus,
            {Observed: self._observe},
            filters=[
                observed_filter(kind, self._settings.cluster)
                for kind in (CLUSTER_PROFILE, MULTIKUEUE_CLUSTER)
            ],
            on_caught_up=self._on_caught_up,
        )

    def _on_caught_up(self) -> None:
        self._synced = True
        self._updated.set()

    def _observe(self, observed: Observed, _entry: Entry) -> None:
        if observed.plural == CLUSTER_PROFILE.plural:
            self._observe_profile(observed)
        else:
            self._observe_cluster(observed)
        self._updated.set()

    def _observe_profile(self, observed: Observed) -> None:
        if observed.namespace != self._settings.profiles_namespace:
            return  # Whoever may write there names the server that gets the credentials.
        if observed.deleted or observed.object is None:
            self._profiles.pop(observed.name, None)
        else:
            self._profiles[observed.name] = observed.object

    def _observe_cluster(self, observed: Observed) -> None:
        source = None if observed.deleted else _source(observed.object)
        if source is None or observed.name == self._settings.cluster:
            self._sources.pop(observed.name, None)
        else:
            self._sources[observed.name] = source

    async def _reconcile_forever(self) -> None:
        while True:
            if self._synced:
                await self._reconcile()
            try:
                async with asyncio.timeout(self._settings.look_seconds):
                    await self._updated.wait()
            except TimeoutError:
                pass  # Check whether the files have changed.
            self._updated.clear()

    async def _reconcile(self) -> None:
        desired: dict[str, _DesiredPair] = {}
        problems = dict.fromkeys((*self._sources, *self._published), "")
        for spoke, source in self._sources.items():
            try:
                desired[spoke] = await self._desired(spoke, source)
            except _UnusableError as error:
                problems[spoke] = str(error)
        for spoke in [one for one, was in self._running.items() if desired.get(one) != was]:
            log.info("a pair is stopped", spoke=spoke)
            await self._supervisor.drop(*(_name(program, spoke) for program in PROGRAMS))
            del self._running[spoke]
        for spoke in desired.keys() - self._running.keys():
            log.info("a pair is started", spoke=spoke)
            self._start(spoke, desired[spoke])
        for spoke in self._running:
            problems[spoke] = problems[spoke] or self._crash_loops(spoke)
        for spoke, problem in problems.items():
            if self._published.get(spoke) != problem:
                await self._publish(spoke, problem)

    def _crash_loops(self, spoke: str) -> str:
        found = {
            program: self._supervisor.crash_loop(_name(program, spoke)) for program in PROGRAMS
        }
        return "; ".join(
            f"Its {program} cannot stay: {why}; the log of `sluice run pairs` says more"
            for program, why in found.items()
            if why is not None
        )

    async def _desired(self, spoke: str, source: _Source) -> _DesiredPair:
        path = self._path(spoke, source.reached)
        if source.quota not in SPOKE_QUOTAS:
            allowed = " or ".join(SPOKE_QUOTAS)
            raise _UnusableError(
                f"metadata.annotations[{SPOKE_QUOTA}]: {source.quota!r}: must be {allowed}"
            )
        try:
            content = path.read_bytes()
        except OSError as error:
            raise _UnusableError(f"{path}: {error.strerror}") from error
        digest = hashlib.sha256(content).hexdigest()
        if (problem := await self._problem(path, digest)) is not None:
            raise _UnusableError(problem)
        return _DesiredPair(
            kubeconfig=path, digest=digest, quota=source.quota, key=self._key(spoke)
        )

    async def _problem(self, path: Path, digest: str) -> str | None:
        """What is wrong with a kubeconfig; None if nothing is.

        One that is right is checked once. One that is not may have a plugin that cannot answer yet.
        """
        known, problem, until = self._checked.get(path, ("", None, 0.0))
        now = asyncio.get_running_loop().time()
        if known == digest and (problem is None or now < until):
            return problem
        problem = None
        try:
            async with asyncio.timeout(PLUGIN_SECONDS):
                await from_kubeconfig(str(path))()
        except RefusedError as error:
            problem = str(error)
        except TimeoutError:
            problem = f"{path}: no credentials within {PLUGIN_SECONDS:g} s"
        self._checked[path] = (digest, problem, now + self._settings.again_seconds)
        return problem

    def _key(self, spoke: str) -> Path | None:
        if self._settings.nats_nkey is None:
            return None
        key = key_file(self._settings.spoke_keys, f"spoke-{spoke}")
        if not key.is_file():
            make = f"sluice bus permissions --spoke {spoke}"
            raise _UnusableError(f"{key}: no key for the bus; `{make}` makes one")
        return key

    def _path(self, spoke: str, source: Mapping[str, Any]) -> Path:
        if reference := source.get("clusterProfileRef"):
            return self._profile_path(spoke, str(reference.get("name")))
        config = source.get("kubeConfig") or {}
        location = str(config.get("location") or "")
        if not location:
            raise _UnusableError("Only a kubeConfig is understood, with its location")
        if config.get("locationType") == "Path":
            return Path(location)
        if "/" in location:
            raise _UnusableError(f"{location!r} is no name of a Secret")
        return self._settings.spoke_secrets / location / KUBECONFIG

    def _profile_path(self, spoke: str, name: str) -> Path:
        """The kubeconfig that is made of a ClusterProfile."""
        where = f"ClusterProfile {self._settings.profiles_namespace}/{name}"
        if (profile := self._profiles.get(name)) is None:
            raise _UnusableError(f"{where}: does not exist")
        try:
            text = kubeconfig_of(profile, self._providers, wrapper=PLUGIN_WRAPPER)
        except ProfileError as error:
            raise _UnusableError(f"{where}: {error}") from error
        assert self._made is not None  # `run` makes it first.
        path = self._made / f"{spoke}.kubeconfig"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.touch(mode=0o600)
            path.write_text(text, encoding="utf-8")
        return path

    def _start(self, spoke: str, desired: _DesiredPair) -> None:
        proof = {} if desired.key is None else {VARIABLES["nkey"]: str(desired.key)}
        for program in PROGRAMS:
            self._supervisor.start(
                ChildSpec(
                    name=_name(program, spoke),
                    argv=(sys.executable, "-m", "services.ctl.main", "run", program.value),
                    environment={
                        "SLUICE_CLUSTER": spoke,
                        "SLUICE_HUB": self._settings.cluster,
                        "SLUICE_INSTANCE": f"{self._settings.instance}-{spoke}",
                        "SLUICE_KUBECONFIG": str(desired.kubeconfig),
                        "SLUICE_SPOKE_QUOTA": desired.quota,
                        # Any free port: the default is taken by this process.
                        "SLUICE_HEALTH_HOST": "127.0.0.1",
                        "SLUICE_HEALTH_PORT": "0",
                        **proof,
                    },
                    ready=_always_ready,
                )
            )
        self._running[spoke] = desired

    async def _publish(self, spoke: str, problem: str) -> None:
        if problem:
            log.warning("a pair cannot run", spoke=spoke, because=problem)
        state = PairState(
            cluster=self._settings.cluster, spoke=spoke, problem=problem, at=self._now()
        )
        try:
            await self._bus.publish(state)
        except BusError as error:
            log.warning(
                "cannot publish the state of a pair; trying again at the next look",
                spoke=spoke,
                error=str(error),
            )
        else:
            self._published[spoke] = problem


async def _always_ready() -> None:
    """Nothing waits for a pair: the status of the spoke tells whether it runs."""


def _source(obj: Mapping[str, Any] | None) -> _Source | None:
    """How to reach a cluster, by the fields of v1beta2 or v1beta1; None if its own pair dials out."""
    spec = spec_of(obj)
    reached: Mapping[str, Any] = spec.get("clusterSource") or spec
    if not (reached.get("kubeConfig") or reached.get("clusterProfileRef")):
        return None
    return _Source(reached=reached, quota=annotations_of(obj).get(SPOKE_QUOTA, SPOKE_QUOTAS[0]))


def _name(program: Program, spoke: str) -> str:
    return f"{program.value}-{spoke}"


def program(overrides: Overrides = NO_OVERRIDES) -> ServiceProgram:
    """What `sluice run pairs` starts, set by the environment and by `overrides`."""
    settings = PairSettings(**overrides)
    profiles = read_configuration(settings.configuration).multi_kueue.cluster_profile

    def build(parts: Parts) -> Pairs:
        supervisor = Supervisor(
            logs=None,
            say=lambda text: log.warning("the supervisor of pairs reports", said=text),
            echo=lambda _, line: print_line(line),
        )
        return Pairs(
            settings=settings,
            bus=parts.bus,
            supervisor=supervisor,
            now=lambda: datetime.now(UTC),
            providers=() if profiles is None else profiles.providers,
        )

    return ServiceProgram(name="pairs", settings=settings, build=build)


def main() -> int:
    """Entry point of `sluice run pairs`."""
    return run_service(program())

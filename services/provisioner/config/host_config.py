"""Reads the ConfigMap `host-config`: flat keys in, platforms and errors out.

The keys are those of konflux-ci/multi-platform-controller@c28c4a01. An error affects only its platform
or host. If an earlier version of that platform or host was valid, that version stays.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, assert_never
from urllib.parse import urlencode

from services.provisioner.config.instance_tags import check_instance_tag, check_length
from services.provisioner.config.parameter_rules import NO_RULES, ParameterRules
from services.provisioner.config.platforms import PlatformFormatError, check_platform, key_of
from services.provisioner.config.provider_types import FAKE, KNOWN_TYPES, PROVIDER_TYPES
from services.provisioner.config.systems import System, system_of
from shared.contracts.kube.numbers import INTEGER
from shared.contracts.multi_platform import CHECK_INTERVAL, DYNAMIC_PLATFORMS, MAX_INSTANCES

ACCOUNT_KEYS: Final = ("account", "region", "url", "crn", "secret", "aws-secret")
"""Keys of a platform that identify the provider's account."""

PORT_MAX: Final = 65535
"""The largest port of TCP."""

SSH_PORT: Final = 22

CONCURRENCY_MAX: Final = 8
MAX_AGE_MINUTES_MAX: Final = 1440
"""The multi-platform controller's limits of a pool: builds on one machine at a time, and its age, a day."""

ALLOCATION_TIMEOUT_SECONDS: Final = 600
CHECK_INTERVAL_SECONDS: Final = 60
_MINUTE_SECONDS: Final = 60
_HOST_FIELDS: Final = frozenset(
    {"address", "user", "platform", "secret", "concurrency", "port", "host-key"}
)
_IBM_ARCHITECTURES: Final = ("s390x", "ppc64le")


class _BadValueError(ValueError):
    """The value of one key is invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A static host."""

    name: str
    address: str
    user: str
    """User with which the provisioner logs in. Each build has a user of its own."""

    platform: str
    secret: str
    concurrency: int
    """Number of TaskRuns at a time. 0: the host is not used."""

    port: int = 22
    host_keys: tuple[str, ...] = ()
    """Accepted public keys, as in a `known_hosts` file, besides those in the secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSpec:
    """The machines of a platform, and their provider."""

    provider: str
    system: System = System.LINUX
    max_instances: int
    tag: str
    allocation_timeout_seconds: int = ALLOCATION_TIMEOUT_SECONDS
    check_interval_seconds: int = CHECK_INTERVAL_SECONDS
    ssh_secret: str = ""
    sudo_commands: str = ""
    extra_tags: tuple[tuple[str, str], ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()
    """All keys of the platform, among them the provider's own."""

    @property
    def account(self) -> str:
        """Provider type and account: `aws?region=…&aws-secret=…`.

        Recorded with each machine, so that the machine can be found and terminated after its platform
        left the configuration or moved to another account.
        """
        given = dict(self.parameters)
        where = {key: given[key] for key in ACCOUNT_KEYS if given.get(key)}
        return f"{self.provider}?{urlencode(where)}" if where else self.provider


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPlatform:
    """TaskRuns build in their own pod."""

    platform: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticPlatform:
    """TaskRuns build on static hosts."""

    platform: str
    hosts: tuple[Host, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicPlatform:
    """Each TaskRun builds on a machine that is ordered for it and terminated afterwards."""

    platform: str
    machines: MachineSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlatform:
    """TaskRuns share machines that are ordered on demand and terminated at their maximum age."""

    platform: str
    machines: MachineSpec
    concurrency: int
    max_age_seconds: int


PlatformConfig = LocalPlatform | StaticPlatform | DynamicPlatform | PoolPlatform


def machine_spec_of(config: PlatformConfig | str) -> MachineSpec | None:
    """The machines that are ordered for a platform; None if none are."""
    match config:
        case DynamicPlatform(machines=spec) | PoolPlatform(machines=spec):
            return spec
        case _:
            return None


def slots_of(config: PlatformConfig) -> int | None:
    """The number of TaskRuns that a platform serves at a time; None if they build in their own pods."""
    match config:
        case LocalPlatform():
            return None
        case StaticPlatform(hosts=hosts):
            return sum(host.concurrency for host in hosts)
        case DynamicPlatform(machines=spec):
            return spec.max_instances
        case PoolPlatform(machines=spec, concurrency=concurrency):
            return spec.max_instances * concurrency
        case _:
            assert_never(config)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConfig:
    """All platforms and hosts, and all errors."""

    platforms: Mapping[str, PlatformConfig]
    hosts: Mapping[str, Host]
    errors: Mapping[str, str]
    """Subject of the error (a platform, `host.<name>`, a key) to its message. A platform may be listed here
    and still be served as it was before the error."""

    def resolve(self, platform: str) -> PlatformConfig | str:
        """The configuration of `platform`, or the message with which its TaskRuns fail."""
        found = self.platforms.get(platform)
        if found is not None:
            return found
        error = self.errors.get(platform)
        if error is not None:
            return f"failed to read host config: {error}"
        where = f" for platform {platform}" if self.hosts else ""
        return f"Error allocating host: no hosts configured{where}"


NO_CONFIG: Final = HostConfig(platforms={}, hosts={}, errors={})


def parse_host_config(
    data: Mapping[str, str],
    *,
    available: frozenset[str],
    rules: Mapping[str, ParameterRules] | None = None,
    last_good: HostConfig = NO_CONFIG,
) -> HostConfig:
    """Read the ConfigMap's `data`. Never raises: errors are in the result.

    `available`: provider types of this installation. `rules`: for the provider's own keys, by type.
    `last_good`: an earlier configuration, used for platforms and hosts that have an error now.
    """
    return _Parser(data, available, rules or {}, last_good).parse()


class _Parser:
    def __init__(
        self,
        data: Mapping[str, str],
        available: frozenset[str],
        rules: Mapping[str, ParameterRules],
        last_good: HostConfig,
    ) -> None:
        self._rules = rules
        self._data = data
        self._available = available
        self._last_good = last_good
        self._platforms: dict[str, PlatformConfig] = {}
        self._errors: dict[str, str] = {}
        self._broken_hosts: dict[str, str] = {}
        self._extra_tags = self._read_extra_tags()

    def parse(self) -> HostConfig:
        """Read all keys. The first list that names a platform decides: local, dynamic, pool, static."""
        for platform in self._list("local-platforms", "local"):
            self._platforms.setdefault(platform, LocalPlatform(platform=platform))
        for platform in self._list(DYNAMIC_PLATFORMS, "dynamic"):
            self._add(platform, shared=False)
        for platform in self._list("dynamic-pool-platforms", "dynamic pool"):
            self._add(platform, shared=True)
        hosts = self._hosts()
        by_platform: dict[str, list[Host]] = {}
        for host in hosts.values():
            # A host without concurrency is never used: no TaskRun may wait for it.
            if host.concurrency > 0:
                by_platform.setdefault(host.platform, []).append(host)
        for platform, members in by_platform.items():
            if platform not in self._platforms and platform not in self._errors:
                self._platforms[platform] = StaticPlatform(
                    platform=platform, hosts=tuple(sorted(members, key=lambda host: host.name))
                )
        for platform, error in self._broken_hosts.items():
            # The platform is served if it has another, valid host.
            if platform not in self._platforms:
                self._errors.setdefault(platform, error)
        return HostConfig(platforms=self._platforms, hosts=hosts, errors=self._errors)

    def _list(self, key: str, type_: str) -> list[str]:
        elements = [element.strip() for element in self._data.get(key, "").split(",")]
        if elements[-1] == "":
            elements.pop()
        good: list[str] = []
        for element in elements:
            if element == "":
                self._errors[key] = f"invalid {type_} platform '': empty platform in middle of list"
                continue
            try:
                good.append(check_platform(element))
            except PlatformFormatError as error:
                self._errors[element] = f"invalid {type_} platform '{element}': {error}"
        return good

    def _add(self, platform: str, *, shared: bool) -> None:
        if platform in self._platforms or platform in self._errors:
            return
        try:
            self._platforms[platform] = self._platform(platform, shared=shared)
        except _BadValueError as error:
            self._errors[platform] = str(error)
            before = self._last_good.platforms.get(platform)
            if isinstance(before, DynamicPlatform | PoolPlatform):
                self._platforms[platform] = before

    def _platform(self, platform: str, *, shared: bool) -> PlatformConfig:
        prefix = f"dynamic.{key_of(platform)}."
        fields = {
            key.removeprefix(prefix): value.strip()
            for key, value in sorted(self._data.items())
            if key.startswith(prefix)
        }
        machines = self._machines(platform, prefix, fields)
        if not shared:
            return DynamicPlatform(platform=platform, machines=machines)
        _check_shared(f"{prefix}concurrency", platform)
        return PoolPlatform(
            platform=platform,
            machines=machines,
            concurrency=_number(prefix, fields, "concurrency", maximum=CONCURRENCY_MAX),
            max_age_seconds=_MINUTE_SECONDS
            * _number(prefix, fields, "max-age", maximum=MAX_AGE_MINUTES_MAX),
        )

    def _machines(self, platform: str, prefix: str, fields: Mapping[str, str]) -> MachineSpec:
        provider = self._provider(prefix, fields)
        tag = self._tag(platform, prefix, fields.get("instance-tag", ""))
        ssh_secret = fields.get("ssh-secret", "")
        if provider != FAKE:
            _check_ssh_secret(prefix, ssh_secret, platform=platform, provider=provider)
        first_error = self._rules.get(provider, NO_RULES).first_error(fields)
        if first_error is not None:
            raise _BadValueError(f"{prefix}{first_error}")
        return MachineSpec(
            provider=provider,
            system=system_of(platform),
            max_instances=_number(prefix, fields, MAX_INSTANCES),
            tag=tag,
            allocation_timeout_seconds=_number(
                prefix, fields, "allocation-timeout", default=ALLOCATION_TIMEOUT_SECONDS
            ),
            check_interval_seconds=_number(
                prefix, fields, CHECK_INTERVAL, default=CHECK_INTERVAL_SECONDS
            ),
            ssh_secret=ssh_secret,
            sudo_commands=fields.get("sudo-commands", ""),
            extra_tags=self._extra_tags,
            parameters=tuple(fields.items()),
        )

    def _tag(self, platform: str, prefix: str, tag: str) -> str:
        """The platform's own tag, or the common one. The common tag is only checked for its length."""
        try:
            if tag:
                check_instance_tag(key_of(platform), tag)
                return tag
            default = self._data.get("instance-tag", "").strip()
            check_length(key_of(platform), default)
        except ValueError as error:
            raise _BadValueError(f"{prefix}instance-tag: {error}") from error
        return default

    def _provider(self, prefix: str, fields: Mapping[str, str]) -> str:
        provider = fields.get("type", "")
        if provider not in KNOWN_TYPES and provider not in self._available:
            *others, last = (f"'{name}'" for name in PROVIDER_TYPES)
            expected = f"{', '.join(others)}, or {last}"
            raise _BadValueError(f"{prefix}type: invalid type: expect {expected}, got '{provider}'")
        if provider not in self._available:
            raise _BadValueError(f"{prefix}type: this installation has no provider '{provider}'")
        return provider

    def _read_extra_tags(self) -> tuple[tuple[str, str], ...]:
        tags: dict[str, str] = {}
        for pair in self._data.get("additional-instance-tags", "").split(","):
            # The text after a second "=" is dropped, as in multi-platform-controller.
            key, *values = pair.strip().split("=")
            if key and values:
                tags[key] = values[0]
            elif pair.strip():
                self._errors["additional-instance-tags"] = f"'{pair.strip()}' is no key=value"
        return tuple(tags.items())

    def _hosts(self) -> dict[str, Host]:
        fields: dict[str, dict[str, str]] = {}
        for key, value in sorted(self._data.items()):
            if not key.startswith("host."):
                continue
            # The name of a host may contain dots: the last dot ends it.
            name, _, field = key.removeprefix("host.").rpartition(".")
            fields.setdefault(name, {})[field] = value.strip()
        hosts: dict[str, Host] = {}
        for name, given in fields.items():
            try:
                hosts[name] = _host(name, given)
            except _BadValueError as error:
                self._errors[f"host.{name}"] = str(error)
                before = self._last_good.hosts.get(name)
                if before is not None:
                    hosts[name] = before
                self._broken_hosts.setdefault(given.get("platform", ""), str(error))
        return hosts


def _host(name: str, fields: Mapping[str, str]) -> Host:
    prefix = f"host.{name}."
    if not name:
        raise _BadValueError(f"host.{next(iter(fields))}: the name of the host is missing")
    unknown = sorted(fields.keys() - _HOST_FIELDS)
    if unknown:
        raise _BadValueError(f"{prefix}{unknown[0]}: unknown key")
    address = fields.get("address", "")
    try:
        ipaddress.ip_address(address)
    except ValueError as error:
        raise _BadValueError(f"{prefix}address: '{address}' is no IP address") from error
    try:
        platform = check_platform(fields.get("platform", ""))
    except PlatformFormatError as error:
        raise _BadValueError(f"{prefix}platform: {error}") from error
    _check_shared(f"{prefix}platform", platform)
    concurrency = 0
    if "concurrency" in fields:
        concurrency = _number(prefix, fields, "concurrency", maximum=CONCURRENCY_MAX)
    return Host(
        name=name,
        address=address,
        user=fields.get("user", ""),
        platform=platform,
        secret=fields.get("secret", ""),
        concurrency=concurrency,
        port=_number(prefix, fields, "port", default=SSH_PORT, maximum=PORT_MAX),
        host_keys=tuple(
            key.strip() for key in fields.get("host-key", "").split(",") if key.strip()
        ),
    )


def _number(
    prefix: str,
    fields: Mapping[str, str],
    field: str,
    *,
    default: int | None = None,
    maximum: int | None = None,
) -> int:
    value = fields.get(field)
    if value is None:
        if default is None:
            raise _BadValueError(f"{prefix}{field}: required")
        return default
    wanted = "greater than or equal to 1" if maximum is None else f"between 1 and {maximum}"
    number = int(value) if INTEGER.fullmatch(value) else 0
    if number < 1 or (maximum is not None and number > maximum):
        raise _BadValueError(f"{prefix}{field}: invalid value '{value}': must be {wanted}")
    return number


def _check_shared(key: str, platform: str) -> None:
    """Refuse a shared platform of Windows or macOS: their images bring only one user."""
    system = system_of(platform)
    if system is not System.LINUX:
        raise _BadValueError(
            f"{key}: a machine of {system} serves one TaskRun: '{platform}' belongs in dynamic-platforms"
        )


def _check_ssh_secret(prefix: str, secret: str, *, platform: str, provider: str) -> None:
    if not secret:
        raise _BadValueError(f"{prefix}ssh-secret: required")
    type_ = PROVIDER_TYPES.get(provider)
    if type_ is None or not type_.architecture_in_secret:
        return
    if not any(a in secret and a in platform for a in _IBM_ARCHITECTURES):
        raise _BadValueError(
            f"{prefix}ssh-secret: '{secret}' and '{platform}' must both contain s390x or ppc64le"
        )

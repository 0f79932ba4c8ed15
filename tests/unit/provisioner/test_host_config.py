"""Each rule of the host configuration, one case each."""

from dataclasses import dataclass, field

import pytest

from services.provisioner.config.host_config import (
    DynamicPlatform,
    HostConfig,
    LocalPlatform,
    PoolPlatform,
    StaticPlatform,
    parse_host_config,
)
from services.provisioner.config.provider_types import RULES

GOOD = {
    "local-platforms": "linux/x86_64, local ,localhost,",
    "dynamic-platforms": "linux/arm64",
    "instance-tag": "prod",
    "dynamic.linux-arm64.type": "fake",
    "dynamic.linux-arm64.max-instances": "10",
    "dynamic-pool-platforms": "linux/s390x",
    "dynamic.linux-s390x.type": "fake",
    "dynamic.linux-s390x.max-instances": "3",
    "dynamic.linux-s390x.concurrency": "4",
    "dynamic.linux-s390x.max-age": "60",
    "host.power.example.com.address": "10.0.0.1",
    "host.power.example.com.platform": "linux/ppc64le",
    "host.power.example.com.user": "root",
    "host.power.example.com.secret": "power-keys",
    "host.power.example.com.concurrency": "8",
}

TYPES = frozenset({"aws", "ibmz", "ibmp", "fake"})


def parse(data: dict[str, str], *, last_good: dict[str, str] | None = None) -> HostConfig:
    before = parse_host_config(last_good or {}, available=TYPES)
    return parse_host_config(data, available=TYPES, last_good=before)


def changed(**changes: str | None) -> dict[str, str]:
    """GOOD with other values; None takes a key away. `linux_arm64__type` is `dynamic.linux-arm64.type`."""
    data: dict[str, str | None] = dict(GOOD)
    for name, value in changes.items():
        platform, _, key = name.replace("_", "-").partition("--")
        data[f"dynamic.{platform}.{key}" if key else platform] = value
    return {key: value for key, value in data.items() if value is not None}


def test_valid_configuration_gives_all_platforms() -> None:
    config = parse(GOOD)
    assert config.errors == {}
    assert {name: type(platform) for name, platform in config.platforms.items()} == {
        "linux/x86_64": LocalPlatform,
        "local": LocalPlatform,
        "localhost": LocalPlatform,
        "linux/arm64": DynamicPlatform,
        "linux/s390x": PoolPlatform,
        "linux/ppc64le": StaticPlatform,
    }


def test_missing_keys_have_defaults() -> None:
    arm = parse(GOOD).platforms["linux/arm64"]
    assert isinstance(arm, DynamicPlatform)
    assert arm.machines.allocation_timeout_seconds == 600
    assert arm.machines.check_interval_seconds == 60
    assert arm.machines.tag == "prod"


def test_host_name_may_contain_dots() -> None:
    power = parse(GOOD).platforms["linux/ppc64le"]
    assert isinstance(power, StaticPlatform)
    assert [(host.name, host.concurrency) for host in power.hosts] == [("power.example.com", 8)]


def test_first_list_that_names_a_platform_decides() -> None:
    data = GOOD | {
        "local-platforms": "linux/arm64,linux/ppc64le",
        "dynamic-pool-platforms": "linux/arm64",
    }
    config = parse(data)
    assert isinstance(config.platforms["linux/arm64"], LocalPlatform)
    assert isinstance(config.platforms["linux/ppc64le"], LocalPlatform)


@dataclass(frozen=True, kw_only=True)
class Bad:
    data: dict[str, str]
    what: str
    error: str
    still: list[str] = field(default_factory=lambda: ["linux/x86_64", "linux/ppc64le"])


def numbers(platform: str, key: str, values: list[str], rule: str) -> dict[str, Bad]:
    prefix = f"dynamic.{platform.replace('/', '-')}.{key}"
    return {
        f"{key} of {platform} must not be {value!r}": Bad(
            data=GOOD | {prefix: value},
            what=platform,
            error=f"{prefix}: invalid value '{value.strip()}': must be {rule}",
        )
        for value in values
    }


NO_NUMBERS = ["0", "-1", "x", "", "1.5", "1e3", "0x10", "1_000", "\u0661", "9" * 30]

BAD = {
    **numbers("linux/arm64", "max-instances", NO_NUMBERS, "greater than or equal to 1"),
    **numbers("linux/arm64", "allocation-timeout", ["0", "soon"], "greater than or equal to 1"),
    **numbers("linux/arm64", "check-interval", ["0", "-5"], "greater than or equal to 1"),
    **numbers("linux/s390x", "concurrency", ["0", "9"], "between 1 and 8"),
    **numbers("linux/s390x", "max-age", ["0", "1441"], "between 1 and 1440"),
    "a dynamic platform needs a type": Bad(
        data=changed(linux_arm64__type=None), what="linux/arm64",
        error="dynamic.linux-arm64.type: invalid type: expect 'aws', 'ibmz', or 'ibmp', got ''",
    ),
    "an unknown type is refused": Bad(
        data=changed(linux_arm64__type="azure"), what="linux/arm64",
        error="dynamic.linux-arm64.type: invalid type: expect 'aws', 'ibmz', or 'ibmp', got 'azure'",
    ),
    "a dynamic platform needs max-instances": Bad(
        data=changed(linux_arm64__max_instances=None), what="linux/arm64",
        error="dynamic.linux-arm64.max-instances: required",
    ),
    "a pool needs a concurrency": Bad(
        data=changed(linux_s390x__concurrency=None), what="linux/s390x",
        error="dynamic.linux-s390x.concurrency: required", still=["linux/arm64"],
    ),
    "a pool needs an age": Bad(
        data=changed(linux_s390x__max_age=None), what="linux/s390x",
        error="dynamic.linux-s390x.max-age: required", still=["linux/arm64"],
    ),
    "a cloud needs a secret": Bad(
        data=changed(linux_arm64__type="aws"), what="linux/arm64",
        error="dynamic.linux-arm64.ssh-secret: required",
    ),
    "IBM's secret must be for the architecture of the platform": Bad(
        data=changed(linux_s390x__type="ibmz", linux_s390x__ssh_secret="ppc64le-key"), what="linux/s390x",
        error="dynamic.linux-s390x.ssh-secret: 'ppc64le-key' and 'linux/s390x' must both contain "
        "s390x or ppc64le",
    ),
    "a tag must be for the platform": Bad(
        data=changed(linux_arm64__instance_tag="prod-amd64"), what="linux/arm64",
        error="dynamic.linux-arm64.instance-tag: platform mismatch: key has 'arm64', value has 'amd64'",
    ),
    "an empty platform in the middle of a list is told": Bad(
        data=GOOD | {"dynamic-platforms": "linux/arm64,,linux/arm64"}, what="dynamic-platforms",
        error="invalid dynamic platform '': empty platform in middle of list", still=["linux/arm64"],
    ),
    "so is one in the middle of the local platforms": Bad(
        data=GOOD | {"local-platforms": "linux/x86_64, ,local,localhost"}, what="local-platforms",
        error="invalid local platform '': empty platform in middle of list",
        still=["linux/x86_64", "local", "linux/arm64"],
    ),
    "and one at the beginning of the pools": Bad(
        data=GOOD | {"dynamic-pool-platforms": ",linux/s390x,"}, what="dynamic-pool-platforms",
        error="invalid dynamic pool platform '': empty platform in middle of list",
        still=["linux/s390x", "linux/arm64"],
    ),
    "a local platform that is none is told": Bad(
        data=GOOD | {"local-platforms": "linux/x86_64,local,localhost,linux"}, what="linux",
        error="invalid local platform 'linux': platform must be in format 'label/label' "
        "where each label follows Kubernetes RFC 1035 label name format",
    ),
    "a platform that is none is told": Bad(
        data=GOOD | {"dynamic-pool-platforms": "linux/S390x"}, what="linux/S390x",
        error="invalid dynamic pool platform 'linux/S390x': platform must be in format 'label/label' "
        "where each label follows Kubernetes RFC 1035 label name format",
    ),
    "a host's address must be one": Bad(
        data=GOOD | {"host.power.example.com.address": "power"}, what="linux/ppc64le",
        error="host.power.example.com.address: 'power' is no IP address", still=["linux/arm64"],
    ),
    "a host needs a platform": Bad(
        data=GOOD | {"host.b.address": "10.0.0.2"}, what="host.b",
        error="host.b.platform: platform must be in format 'label/label' where each label follows "
        "Kubernetes RFC 1035 label name format",
    ),
    "a host needs an address": Bad(
        data=GOOD | {"host.b.platform": "linux/ppc64le"}, what="host.b",
        error="host.b.address: '' is no IP address",
    ),
    "a host's platform must be one": Bad(
        data=GOOD | {"host.b.address": "10.0.0.2", "host.b.platform": "ppc64le"}, what="host.b",
        error="host.b.platform: platform must be in format 'label/label' where each label follows "
        "Kubernetes RFC 1035 label name format",
    ),
    "a host's concurrency is a number": Bad(
        data=GOOD | {"host.power.example.com.concurrency": "two"}, what="host.power.example.com",
        error="host.power.example.com.concurrency: invalid value 'two': must be between 1 and 8",
        still=["linux/arm64"],
    ),
    "a host's port is one": Bad(
        data=GOOD | {"host.power.example.com.port": "70000"}, what="host.power.example.com",
        error="host.power.example.com.port: invalid value '70000': must be between 1 and 65535",
        still=["linux/arm64"],
    ),
    "a key of a host without a field is told": Bad(
        data=GOOD | {"host.power": "10.0.0.1"}, what="host.",
        error="host.power: the name of the host is missing",
    ),
    "a host's concurrency has a limit": Bad(
        data=GOOD | {"host.power.example.com.concurrency": "9"}, what="host.power.example.com",
        error="host.power.example.com.concurrency: invalid value '9': must be between 1 and 8",
        still=["linux/arm64"],
    ),
    "an unknown key of a host is told": Bad(
        data=GOOD | {"host.power.example.com.concurency": "1"}, what="host.power.example.com",
        error="host.power.example.com.concurency: unknown key", still=["linux/arm64"],
    ),
    "a host without a name is told": Bad(
        data=GOOD | {"host.address": "10.0.0.1"}, what="host.",
        error="host.address: the name of the host is missing",
    ),
    "a machine of Windows is shared by nobody": Bad(
        data=GOOD
        | {
            "dynamic-pool-platforms": "linux/s390x,windows/amd64",
            **{f"dynamic.windows-amd64.{key}": value for key, value in (
                ("type", "fake"), ("max-instances", "1"), ("concurrency", "2"), ("max-age", "9"))},
        },
        what="windows/amd64", still=["linux/arm64"],
        error="dynamic.windows-amd64.concurrency: a machine of windows serves one TaskRun: "
        "'windows/amd64' belongs in dynamic-platforms",
    ),
    "a static host runs Linux": Bad(
        data=GOOD | {"host.power.example.com.platform": "macos-mac2metal/arm64"},
        what="host.power.example.com", still=["linux/arm64"],
        error="host.power.example.com.platform: a machine of macos serves one TaskRun: "
        "'macos-mac2metal/arm64' belongs in dynamic-platforms",
    ),
    "a tag that is no pair is told": Bad(
        data=GOOD | {"additional-instance-tags": "team=a,oops"}, what="additional-instance-tags",
        error="'oops' is no key=value", still=["linux/arm64"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_error_is_reported_and_other_platforms_are_served(case: Bad) -> None:
    config = parse(case.data)
    assert config.errors[case.what] == case.error
    assert set(case.still) <= config.platforms.keys()
    if case.what in {"linux/arm64", "linux/s390x", "linux/ppc64le"}:
        assert case.what not in config.platforms
        assert config.resolve(case.what) == f"failed to read host config: {case.error}"


@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_last_good_version_is_kept_on_error(case: Bad) -> None:
    before, after = parse(GOOD), parse(case.data, last_good=GOOD)
    assert case.error in after.errors.values()
    listed = before.platforms.keys() - {"linux/s390x" if case.what == "linux/S390x" else ""}
    assert listed <= after.platforms.keys()
    if case.what in listed:
        assert after.platforms[case.what] == before.platforms[case.what]


OF_CLOUDS = {
    "aws": {
        "region": "us-east-1", "ami": "ami-1", "instance-type": "m6g.large", "aws-secret": "aws",
        "disk": "40", "iops": "3000", "throughput": "125", "strict-public-address": "true",
    },
    "ibmz": {
        "vpc": "v", "key": "k", "subnet": "s", "image-id": "i", "region": "us-east", "url": "https://v",
        "profile": "bz2-2x8", "secret": "ibm", "private-ip": "false", "disk": "100",
    },
    "ibmp": {
        "crn": "crn:v1", "network": "n", "system": "s922", "image": "i", "key": "k", "url": "https://p",
        "secret": "ibm", "cores": "0.25", "memory": "2", "disk": "100",
    },
}  # fmt: skip
MISTAKES = [
    *((type_, key, "", "required") for type_, key in (
        ("aws", "region"), ("aws", "ami"), ("aws", "instance-type"), ("aws", "aws-secret"),
        ("ibmz", "vpc"), ("ibmz", "key"), ("ibmz", "subnet"), ("ibmz", "image-id"), ("ibmz", "region"),
        ("ibmz", "url"), ("ibmz", "profile"), ("ibmz", "secret"),
        ("ibmp", "crn"), ("ibmp", "network"), ("ibmp", "system"), ("ibmp", "image"), ("ibmp", "key"),
        ("ibmp", "url"), ("ibmp", "secret"),
    )),
    *((type_, key, value, f"invalid value '{value}': must be {rule}") for type_, key, value, rule in (
        ("aws", "disk", "big", "a whole number, at least 1"),
        ("aws", "disk", "0", "a whole number, at least 1"),
        ("aws", "iops", "-1", "a whole number, at least 1"),
        ("aws", "throughput", "1.5", "a whole number, at least 1"),
        ("aws", "strict-public-address", "yes", "true or false"),
        ("aws", "spot", "1", "true or false"),
        ("ibmz", "disk", "1e3", "a whole number, at least 1"),
        ("ibmz", "private-ip", "no", "true or false"),
        ("ibmp", "cores", "0.1", "a number, at least 0.25"),
        ("ibmp", "cores", "many", "a number, at least 0.25"),
        ("ibmp", "memory", "1", "a number, at least 2"),
        ("ibmp", "disk", "99", "a whole number, at least 100"),
    )),
    ("aws", "tenancy", "host", None),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "key", "value", "rule"), MISTAKES)
def test_invalid_key_of_a_provider_is_reported(
    type_: str, key: str, value: str, rule: str | None
) -> None:
    platform = "linux/ppc64le" if type_ == "ibmp" else "linux/s390x"
    prefix = f"dynamic.{platform.replace('/', '-')}."
    mine = {
        "type": type_,
        "max-instances": "1",
        "ssh-secret": f"key-{platform[6:]}",
        **OF_CLOUDS[type_],
    }

    def read(fields: dict[str, str]) -> HostConfig:
        data = {
            **{key: value for key, value in GOOD.items() if "s390x" not in key},
            "dynamic-pool-platforms": "",
            "dynamic-platforms": f"linux/arm64,{platform}",
            **{prefix + key: value for key, value in fields.items()},
        }
        return parse_host_config(data, available=TYPES, rules=RULES)

    good, bad = read(mine), read({**mine, key: value})
    assert good.errors == {}
    if rule is None:
        rule = "required with tenancy"
        key = "host-resource-group-arn"
    assert bad.errors == {platform: f"{prefix}{key}: {rule}"}
    assert "linux/arm64" in bad.platforms


def test_common_tag_too_long_for_ibm_is_reported() -> None:
    config = parse(GOOD | {"instance-tag": "p" * 46})
    assert config.errors == {
        "linux/s390x": "dynamic.linux-s390x.instance-tag: "
        "instance tag too long for s390x: 46 characters (max 45)"
    }
    assert "linux/arm64" in config.platforms


def test_platform_that_left_the_lists_is_not_kept_as_last_good() -> None:
    config = parse(GOOD | {"dynamic-platforms": ""}, last_good=GOOD)
    assert "linux/arm64" not in config.platforms
    text = "Error allocating host: no hosts configured for platform linux/arm64"
    assert config.resolve("linux/arm64") == text


def test_platform_with_one_invalid_host_keeps_the_other() -> None:
    extra = {
        "host.b.address": "10.0.0.2",
        "host.b.platform": "linux/ppc64le",
        "host.b.concurrency": "x",
    }
    power = parse(GOOD | extra).platforms["linux/ppc64le"]
    assert isinstance(power, StaticPlatform)
    assert [host.name for host in power.hosts] == ["power.example.com"]


def test_host_without_concurrency_is_not_used() -> None:
    config = parse({"host.a.address": "10.0.0.1", "host.a.platform": "linux/ppc64le"})
    text = "Error allocating host: no hosts configured for platform linux/ppc64le"
    assert config.resolve("linux/ppc64le") == text


def test_unknown_platform_without_any_host_has_general_message() -> None:
    assert parse({}).resolve("linux/riscv64") == "Error allocating host: no hosts configured"


def test_provider_type_that_is_not_installed_is_refused() -> None:
    config = parse_host_config(
        changed(linux_arm64__type="aws", linux_arm64__ssh_secret="keys"),
        available=frozenset({"fake"}),
    )
    assert config.errors == {
        "linux/arm64": "dynamic.linux-arm64.type: this installation has no provider 'aws'"
    }


def test_additional_tag_ends_at_second_equals_sign() -> None:
    arm = parse(GOOD | {"additional-instance-tags": "team=a, cost=b=c ,"}).platforms["linux/arm64"]
    assert isinstance(arm, DynamicPlatform)
    assert arm.machines.extra_tags == (("team", "a"), ("cost", "b"))

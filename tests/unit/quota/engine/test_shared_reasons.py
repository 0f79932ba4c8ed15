"""The engine, which imports nothing of ours, and the contracts name a reason alike."""

from collections.abc import Mapping
from types import ModuleType

from services.quota.engine import reasons as of_engine
from shared.contracts import reasons as of_contracts


def test_each_reason_of_engine_is_that_of_contracts() -> None:
    own = constants(of_engine)

    assert own
    assert own.items() <= constants(of_contracts).items()


def constants(module: ModuleType) -> Mapping[str, str]:
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, str) and name.isupper()
    }

"""What several tests of the provisioner's hosts use."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.provisioner.ssh_host import SshHost, ssh_host


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[SshHost]:
    async with ssh_host(tmp_path) as host:
        yield host

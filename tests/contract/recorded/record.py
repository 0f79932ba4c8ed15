"""Records the logs of the present release: ``python -m tests.contract.recorded.record <release>``."""

import sys

from shared.testing.world.world import World
from tests.contract.recorded.logs import FOLDER, write_file
from tests.contract.recorded.scene import Scene


def main(release: str) -> None:
    """Play the scene in virtual time and write the file of a release beside this module."""
    with World(1) as world:
        scene = Scene(world)
        world.run(scene.play)
        assert not world.failures, world.failures
        write_file(FOLDER / f"{release}.jsonl.gz", scene.server, scene.system.apis)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""``python -m services.simulator``: a cluster to try things on."""

from services.simulator.command import main

if __name__ == "__main__":
    main()

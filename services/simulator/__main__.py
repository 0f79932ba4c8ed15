"""``python -m services.simulator``: starts a simulated cluster."""

from services.simulator.command import main

if __name__ == "__main__":
    main()

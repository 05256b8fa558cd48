"""Starts the simulator, fast, with the environment of a launch."""

from __future__ import annotations

import os
import sys

from optagent.tools.simulator.__main__ import main

if __name__ == "__main__":
    main(sys.argv[1:], {**os.environ, "OPTAGENT_SIMULATION_SPEED": "100000"})

"""Three seeds of the campaign benchmark on its quickest deployments: `python whole_campaigns.py`.

All of it is `python campaigns/run.py`; campaigns/README.md says what is measured.
"""

from __future__ import annotations

import sys

from campaigns.run import main

QUICKEST = ("llama-70b-4x-h100-64-streams", "qwen-30b-a3b-2x-pro6000-128-streams", "qwen-32b-2x-l40s-32-streams")

if __name__ == "__main__":
    chosen = [word for name in QUICKEST for word in ("--deployment", name)]
    main([*chosen, "--seeds", "3", *sys.argv[1:]])

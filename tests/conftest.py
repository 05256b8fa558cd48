"""Settings of all tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("person", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("person"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "person")

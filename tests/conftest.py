"""Settings of all tests."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

settings.register_profile("person", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("person"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "person")

for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:  # in the background and under nohup; the tests send them
        signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)

"""Laying out worlds: the same everywhere, whole or not at all, as the last session left them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

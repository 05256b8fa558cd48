"""What a launch was really started with: the settings that the server prints, defaults that switched themselves on included."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

PAIR = re.compile(
    r"['\"]?\b([a-z_][a-z0-9_]{2,60})['\"]?(?:=|: )"
    r"('(?:[^'\\]|\\.){0,400}'|\"(?:[^\"\\]|\\.){0,400}\"|True|False|None|-?\d[\d.e+-]{0,20})(?=[,)}\] ]|$)"
)
EXPORT = re.compile(r"^\+? ?export (.+)|^\s*([A-Za-z_]\w{2,60})=(\S.{0,300})$")
VARIABLE = re.compile(r"([A-Za-z_]\w{2,60})=(\"[^\"]*\"|'[^']*'|\S*)")
MOST_VARIABLES = 200


@dataclass
class LaunchArguments:
    """`values` as they were printed; `environment` from launcher scripts that echo their commands."""

    values: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def take_settings(self, text: str) -> None:
        self.values = {name: value.strip("'\"") for name, value in PAIR.findall(text)}

    def take_shell(self, text: str) -> None:
        found = EXPORT.match(text)
        if found is None or len(self.environment) >= MOST_VARIABLES:
            return
        pairs = VARIABLE.findall(found.group(1)) if found.group(1) else [(found.group(2), found.group(3))]
        self.environment |= {name: value.strip("'\"") for name, value in pairs}

    def on(self, name: str) -> bool:
        return self.values.get(name) == "True"

    def text(self, name: str) -> str | None:
        value = self.values.get(name)
        return None if value in (None, "None", "", "null", "none") else value

    def number(self, name: str) -> float | None:
        try:
            return float(self.values.get(name, ""))
        except ValueError:
            return None

    @property
    def graph_batch(self) -> float | None:
        """The largest batch that CUDA graphs are captured for, where it was set; by both of its names."""
        newer = self.number("cuda_graph_max_bs_decode")
        return newer if newer is not None else self.number("cuda_graph_max_bs")

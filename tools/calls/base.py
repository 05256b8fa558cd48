"""The common shape of what goes into a tool and comes out of it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Request(BaseModel):
    """What a tool is asked. Paths are relative to the campaign folder, so that a recording replays anywhere."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class EffectRequest(Request):
    """A request that changes the world. `key` names the effect: the same key is the same effect, never done twice."""

    key: str


class Result(BaseModel):
    """What a tool found or did."""

    model_config = ConfigDict(frozen=True, extra="forbid")

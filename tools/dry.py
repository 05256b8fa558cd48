"""A toolbox that looks and never touches: observations are real, effects are answered as if they had worked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

from optagent.tools.calls.base import EffectRequest, Request, Result
from optagent.tools.calls.files import ReadText, WriteText
from optagent.tools.calls.patch import ApplyPatch, DropPatch, RestoreCheckout
from optagent.tools.routed import RoutedToolbox
from optagent.tools.toolbox import Toolbox

R = TypeVar("R", bound=Result)

_AS_IF: dict[str, Callable[[Any], dict[str, Any]]] = {
    "write_text": lambda request: {"written": True},
    "stop": lambda request: {"gone": True},
    "launch": lambda request: {"outcome": "not-started", "problem": "nothing is launched in a dry run"},
    "bench": lambda request: {"valid": False, "invalid_because": ["nothing is measured in a dry run"]},
    "examine": lambda request: {"problem": "nothing is asked in a dry run"},
    "evaluate": lambda request: {"problem": "nothing is asked in a dry run"},
    "prepare_environment": lambda request: {"ready": True},
    "apply_patch": lambda request: {"revision": request.base if isinstance(request, ApplyPatch) else None},
    "drop_patch": lambda request: {"revision": request.base if isinstance(request, DropPatch) else None},
    "restore_checkout": lambda request: {
        "revision": request.revision if isinstance(request, RestoreCheckout) else None
    },
}


class DryToolbox(RoutedToolbox):
    """Wraps a toolbox and lets only observations through. A file that was "written" is read back as if it had been."""

    def __init__(self, inner: Toolbox) -> None:
        self._inner = inner
        self._written: dict[str, str] = {}

    def call(self, tool: str, request: Request, answers_with: type[R]) -> R:
        if isinstance(request, WriteText):
            self._written[request.path] = request.text
        if isinstance(request, ReadText) and request.path in self._written:
            text = self._written[request.path]
            return answers_with.model_validate({"text": text, "sha256": hashlib.sha256(text.encode()).hexdigest()})
        if not isinstance(request, EffectRequest):
            result: R = getattr(self._inner, tool)(request)
            return result
        return answers_with.model_validate(_AS_IF.get(tool, lambda _: {})(request))

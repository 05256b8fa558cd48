"""Declares torchvision's operators `nms` and `qnms` before torchvision is first imported.

torchvision's wheel is built beside a CUDA build of torch. Next to a CPU build its compiled operators do not load, and
its import fails where it registers fake versions of them. Declared here they can be registered; nothing calls them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

DECLARATIONS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
kept_alive: list[object] = []  # a torch library takes its operators with it when it is collected


class DeclareBeforeTorchvision(MetaPathFinder):
    """Finds nothing; the first look for torchvision makes it declare the operators."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            declare()
        return None


def declare() -> None:
    """Declare the operators, without an implementation."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for declaration in DECLARATIONS:
        library.define(declaration)
    kept_alive.append(library)


sys.meta_path.insert(0, DeclareBeforeTorchvision())

"""Stands in for SGLang's GPU kernels on a machine without a GPU.

SGLang imports names from `sgl_kernel` at start, also for `--device cpu`. Every name resolves here, in every submodule,
and so do the names within it; called, each of them raises: what would compute without its kernel fails loudly.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__version__ = "0.0.0+standin"


class MissingKernel:
    """One kernel that is not there, or a collection of them."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> MissingKernel:
        return missing(self.name, name)

    def __call__(self, *args: object, **kwargs: object) -> object:
        raise RuntimeError(f"{self.name} is a stand-in: this machine has no GPU kernels")


def missing(owner: str, name: str) -> MissingKernel:
    """The stand-in for `owner.name`. Names of Python's own protocols do not exist, so that nothing mistakes it."""
    if name.startswith("__"):
        raise AttributeError(f"{owner!r} has no attribute {name!r}")
    return MissingKernel(f"{owner}.{name}")


class KernelModule(ModuleType):
    """A submodule of `sgl_kernel` in which every name is a missing kernel."""

    __path__: list[str] = []  # noqa: RUF012 - marks it as a package, so that `sgl_kernel.a.b` is looked for as well

    def __getattr__(self, name: str) -> MissingKernel:
        return missing(self.__name__, name)


class KernelModules(MetaPathFinder, Loader):
    """Finds every submodule of `sgl_kernel`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname.startswith("sgl_kernel.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return KernelModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


sys.meta_path.append(KernelModules())


def __getattr__(name: str) -> MissingKernel:
    return missing(__name__, name)

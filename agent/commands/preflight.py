"""What has to be right before a sitting begins, looked at before anything is done: nothing on disk has changed then."""

from __future__ import annotations

import os

from optagent.agent.commands.printable import clean
from optagent.agent.commands.workspace import Workspace, looking
from optagent.agent.config import wrong_key
from optagent.agent.errors import BadInput
from optagent.agent.flag_lint import names_to_ask, refused_flag
from optagent.agent.orient import Orientation, check_fit, has_prompts, orient
from optagent.agent.reconciling import known_good_state
from optagent.agent.session import Narrator, Session
from optagent.tools.calls.server import ListFlags
from optagent.tools.exhausted import file_size_limit, free_bytes, raised_file_limit
from optagent.tools.network import address_of
from optagent.tools.usable import Unusable, unusable_interpreter, unusable_source

LEAST_FILES = 128
"""Journal, checkpoints, logs, pipes and git at once, with room to spare; every request at once needs one more."""
LEAST_BYTES = 50 * 10**6
"""What logs, results and examinations of a few launches take."""


def check_usable(space: Workspace, narrator: Narrator) -> None:
    """Raises BadInput for what the owner has to put right before anything can be launched here. What was there once and is
    not any more is a question instead, which the sitting asks."""
    _check_local(space)
    _check_limits(space)
    session = looking(space)
    try:
        orientation = orient(session)
        check_fit(session, orientation.plan)
        if not has_prompts(session):
            prompts = clean(space.config.workload.prompts or "")
            raise wrong_key(space.root, "workload.prompts", f"{prompts} cannot be read or is empty")
        if space.config.deployment.kind == "sglang":
            _check_real(space, session, orientation, narrator)
    finally:
        session.journal.close()


def _check_local(space: Workspace) -> None:
    """A sitting launches and stops servers, which it can do on this machine alone."""
    address = address_of(space.config.deployment)
    if not address.local:
        away = f"{address.host} is not this machine; its server cannot be launched from here (`optagent bench` measures it)"
        raise wrong_key(space.root, "deployment.host", away)


def _check_limits(space: Workspace) -> None:
    """What would run out in the middle of a sitting, said before it begins."""
    files = LEAST_FILES + space.config.workload.max_concurrency
    if (limit := raised_file_limit()) < files:
        raise BadInput("ulimit -n", f"{limit} open files are allowed and a sitting needs {files}: raise the limit")
    size = file_size_limit()
    if size is not None and size < LEAST_BYTES:
        raise BadInput("ulimit -f", f"files may have {size} bytes and logs become larger: raise the limit")
    free = free_bytes(space.root)
    if free is not None and free < LEAST_BYTES:
        raise BadInput(
            str(space.root),
            f"only {free / 1e6:.0f} MB are free on this disk: make room, {LEAST_BYTES // 10**6} MB at least",
        )


def _check_real(space: Workspace, session: Session, orientation: Orientation, narrator: Narrator) -> None:
    deployment = space.config.deployment
    _refuse(space, unusable_source(space.root, deployment))
    if session.ledger.measured_launches:
        return
    environment = known_good_state(session, orientation).configuration.environment
    _refuse(space, unusable_interpreter(space.root, deployment, environment, os.environ))
    handed_over = orientation.handoff is not None and orientation.handoff.baseline is not None
    if session.ledger.baseline is None and not handed_over:
        _check_flags(space, session, narrator)


def _refuse(space: Workspace, found: Unusable | None) -> None:
    if found is not None:
        raise wrong_key(space.root, found.key, clean(found.problem))


def _check_flags(space: Workspace, session: Session, narrator: Narrator) -> None:
    """Hold the flags of optagent.toml against the server's own help, as a change's are, while they are a baseline that
    never ran."""
    baseline = session.configured()
    narrator.now("holding the baseline's flags against the installed server's help")
    listed = session.toolbox.list_flags(ListFlags(environment=baseline.environment, names=names_to_ask(baseline)))
    if (refused := refused_flag(baseline, listed)) is not None:
        name, problem = refused
        raise wrong_key(space.root, f"deployment.flags.{name}", clean(problem))

"""What the journal expects held against what a probe saw."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optagent.agent.change import Change
from optagent.agent.experiments import ITEM, Experiment
from optagent.agent.ledger import Ledger
from optagent.agent.reconcile import Findings, Leftover, facts_of, find, sha256
from optagent.tools.calls.configuration import Configuration
from optagent.tools.calls.world import CheckoutSeen, Gpu, ProcessSeen, ServerSeen, World

HEAD = "62028850ca70adeed3b48a9ff83bcc98cfa35e81"
GPUS = [Gpu(index=n, name="RTX PRO 6000", memory_total_gb=96, memory_used_gb=0.5) for n in range(8)]
KNOWN_GOOD = Configuration("cu128", files={"sitecustomize.py": "good"}, revision=HEAD)
WORLD = World(
    gpus=GPUS,
    versions={"cuda": "12.8", "sglang": "0.5.8"},
    environments={"cu128": True, "cu13": False},
    checkout=CheckoutSeen(revision=HEAD, branch="main"),
    files={"sitecustomize.py": sha256("good"), "gone.py": None},
)
DIRTY = CheckoutSeen(revision=HEAD, branch="main", dirty=["a.py"], dirty_sha256="d1")


def changed(**parts: object) -> World:
    return WORLD.model_copy(update=parts)


def test_what_is_known_about_the_world() -> None:
    assert facts_of(WORLD, "cu128") == {
        "cuda": "12.8", "sglang": "0.5.8", "environment": "cu128",
        "gpu.count": "8", "gpu.name": "RTX PRO 6000", "gpu.model": "RTX-PRO-6000", "gpu.memory_gb": "96",
    }  # fmt: skip


def test_what_is_not_known_is_absent() -> None:
    assert facts_of(World(), "cu128") == {"environment": "cu128"}


def test_the_known_good_state_is_nothing_to_report() -> None:
    assert find(WORLD, KNOWN_GOOD, Ledger()).clean


SERVER = ServerSeen(pid=7, start_time=1.0, command="python -m other")
OURS = ProcessSeen(pid=7, start_time=1.0, alive=True)
HELD = [GPUS[0].model_copy(update={"holders": [4711]})]


@pytest.mark.parametrize(
    ("world", "findings"),
    [
        (
            changed(port_open=True, server=SERVER),
            Findings(foreign="pid 7 listens on the deployment's port: python -m other"),
        ),
        (
            changed(port_open=True, server=ServerSeen()),
            Findings(foreign="a process that cannot be identified listens on the deployment's port"),
        ),
        (changed(port_open=True), Findings(foreign="something listens on the deployment's port")),
        (changed(gpus=HELD), Findings(foreign="GPU memory is held by pid 4711")),
        (changed(files={"sitecustomize.py": sha256("edited")}), Findings(drifted=("sitecustomize.py",))),
        (changed(files={}), Findings(drifted=("sitecustomize.py",))),
        (changed(environments={"cu128": False}), Findings(missing_environment="cu128")),
        (changed(checkout=DIRTY), Findings(unrecorded="uncommitted changes in a.py (content d1)")),
        (
            changed(checkout=CheckoutSeen(revision="f" * 40, branch="mine")),
            Findings(unrecorded=f"the checkout is at {'f' * 12} (mine), which nobody recorded"),
        ),
        (
            changed(checkout=CheckoutSeen(revision="f" * 40, branch="optagent/E0001")),
            Findings(checkout_off=f"checkout is at {'f' * 12}, not at {HEAD[:12]}"),
        ),
        (
            changed(checkout=CheckoutSeen(revision="", problem="not a repository")),
            Findings(unrecorded="the source checkout cannot be read: not a repository"),
        ),
        (changed(checkout=None), Findings()),
    ],
)
def test_what_is_not_as_it_should_be_and_whose_it_is(world: World, findings: Findings) -> None:
    assert find(world, KNOWN_GOOD, Ledger()) == findings


def test_a_server_of_ours_is_a_leftover_and_not_foreign() -> None:
    world = changed(port_open=True, server=SERVER.model_copy(update={"known": True}), processes=[OURS], gpus=HELD)
    found = find(world, KNOWN_GOOD, Ledger(processes={(7, 1.0): "E0001-baseline-1"}))
    assert found == Findings(leftovers=(Leftover("E0001-baseline-1", 7, 1.0),))


def test_a_pid_alone_is_no_identity() -> None:
    world = changed(port_open=True, server=SERVER, processes=[OURS])
    found = find(world, KNOWN_GOOD, Ledger(processes={(7, 2.0): "E0001-baseline-1"}))
    assert not found.leftovers
    assert found.foreign


def test_a_process_found_by_its_launch_s_mark_is_ours() -> None:
    world = changed(processes=[OURS.model_copy(update={"launch": "E0002-candidate-1"})])
    assert find(world, KNOWN_GOOD, Ledger()).leftovers == (Leftover("E0002-candidate-1", 7, 1.0),)


def test_a_process_that_is_gone_is_no_leftover() -> None:
    world = changed(processes=[OURS.model_copy(update={"alive": False})])
    assert find(world, KNOWN_GOOD, Ledger(processes={(7, 1.0): "E0001-baseline-1"})).clean


def test_edits_that_a_handoff_told_of_are_ours_to_put_back() -> None:
    found = find(changed(checkout=DIRTY), KNOWN_GOOD, Ledger(known_dirt={"d1"}))
    assert found == Findings(checkout_off="experimental edits in a.py")


def test_unrecorded_work_is_put_aside_once_the_owner_says_so() -> None:
    world = changed(checkout=DIRTY)
    asked = find(world, KNOWN_GOOD, Ledger()).unrecorded
    assert find(world, KNOWN_GOOD, Ledger(to_set_aside={asked})) == Findings(checkout_off=asked)


def test_the_revision_of_a_tried_patch_is_ours() -> None:
    tried = Experiment("E1", ITEM, "t", KNOWN_GOOD, "S1", change=Change(patch="p"))
    ledger = Ledger(experiments={"E1": replace(tried, candidate=replace(KNOWN_GOOD, revision="f" * 40))})
    found = find(changed(checkout=CheckoutSeen(revision="f" * 40)), KNOWN_GOOD, ledger)
    assert found.checkout_off
    assert not found.unrecorded

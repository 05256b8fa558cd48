"""Claims held against what was seen, looked up and recorded: holds, does not hold, cannot be checked, and the evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optagent.agent.checks import Check, Outcome, Sight, check_claims, same_gpus
from optagent.agent.experiments import ITEM, Experiment, Run
from optagent.agent.handoff.claims import MOST, stated, to_look_up
from optagent.agent.handoff.model import Handoff
from optagent.agent.ledger import Ledger
from optagent.agent.reconcile import facts_of, sha256
from optagent.agent.records import Attempt, Baseline, Claim, DeadEnd, InFlight, Measurement, Question
from optagent.tools.calls.configuration import Configuration
from optagent.tools.calls.facts import LookedUp, LookUp
from optagent.tools.calls.world import CheckoutSeen, Gpu, ServerSeen, World

HOLDS, BROKEN, UNKNOWN = Outcome.HOLDS, Outcome.BROKEN, Outcome.UNKNOWN
HEAD = "62028850ca70adeed3b48a9ff83bcc98cfa35e81"
OTHER = "aae793a0c0f4614a6313e832347e7f1ad27b8d19"
GPUS = [Gpu(index=n, name="RTX PRO 6000", memory_total_gb=96, memory_used_gb=0.5) for n in range(8)]
WORLD = World(
    gpus=GPUS,
    versions={"cuda": "12.8", "sglang": "0.5.8", "torch": "2.9.1+cu128"},
    environments={"cu128": True, "cu13": False},
    checkout=CheckoutSeen(revision=HEAD, branch="main"),
    files={"sitecustomize.py": sha256("good"), "gone.py": None},
    disk_free_gb=500.0,
)
DIRTY = CheckoutSeen(revision=HEAD, branch="main", dirty=["a.py"], dirty_sha256="d1")
SERVER = World(port_open=True, server=ServerSeen(pid=7, command="python -m sglang.launch_server"))
BASE = Configuration("cu128", {"model-path": "/models/k", "tp-size": 8, "trust-remote-code": True}, revision=HEAD)
DONE = Experiment(
    "E2", ITEM, "t", BASE, "S1", verdict="keep", effect=0.091, runs=(Run("candidate", 1, 9.0, evidence="r.jsonl"),)
)
LEDGER = Ledger(
    experiments={"E2": DONE},
    attempts=[Attempt("X1", "told", "keep")],
    dead_ends={"d1": DeadEnd("d1", "Fusion", "no kernels"), "d2": DeadEnd("d2", "Tree", "no capture")},
    reopened={"d2": "cuda>=13 now holds"},
    questions={
        "Q1": Question("Q1", "r", "t", "w"), "Q2": Question("Q2", "r", "t", "w", answer="approve"),
        "Q3": Question("Q3", "r", "t", "w", withdrawn=True),
    },
)  # fmt: skip
LOOKED = LookedUp.model_validate({
    "paths": {
        "/m": {"what": "folder"}, "/f": {"what": "file", "size_bytes": 12}, "/n": {"what": "nothing"},
        "/x": {"what": "not to be seen"}
    },
    "logs": {
        "a.log": {
            "status": "crashed", "phase": "graph-capture",
            "cause": {
                "kind": "gpu-oom-weights", "summary": "out of memory", "evidence": [{"line": 7, "text": "CUDA out of memory"}]
            },
        },
        "gone.log": {"exists": False},
    },
    "benchmarks": {"r.jsonl": {"output_throughput": 90.0, "duration": 3.0}, "none.jsonl": None},
    "revisions": {OTHER: {"commit": OTHER, "subject": "Faster"},
        "aae793a": {"commit": OTHER, "subject": "Faster", "contained": True}, "bad1": {}},
    "branches": {"main": HEAD, "gone": None},
    "patches": {"a.diff": "applied", "b.diff": "fits", "c.diff": "does-not-fit", "d.diff": "missing"},
    "ports": {"30000": None, "8000": "pid 9 (python)"},
    "pids": {"9": "python", "10": None},
    "running_flags": {"tp_size": 8, "model_path": "/models/k", "mem_fraction_static": 0.88, "trust_remote_code": True},
})  # fmt: skip
SIGHT = Sight(
    WORLD, LOOKED, LEDGER, facts_of(WORLD, "cu128"), {"output_throughput": 89.0}, ("E9", "runs/E9.jsonl"), 0.03, ours=True
)  # fmt: skip
NOT_LOOKED = replace(SIGHT, looked=LookedUp(), ours=False)


def changed(**parts: object) -> Sight:
    return replace(SIGHT, world=WORLD.model_copy(update=parts))


def check(kind: str, subject: str, expected: str, sight: Sight = SIGHT) -> Check:
    [found] = check_claims([Claim("C1", "a claim", kind, subject, expected)], sight)
    assert found.because
    return found


CASES = [
    ("version", "cuda", "12.8", SIGHT, HOLDS, "cuda is 12.8"),
    ("version", "cuda", "13.0", SIGHT, BROKEN, "cuda is 12.8, not 13.0"),
    ("version", "torch", "2.9.1", SIGHT, HOLDS, "torch is 2.9.1+cu128"),
    ("version", "torch", "2.9", SIGHT, HOLDS, "torch is 2.9.1+cu128"),
    ("version", "torch", "2", SIGHT, HOLDS, "torch is 2.9.1+cu128"),
    ("version", "torch", "2.9.10", SIGHT, BROKEN, "torch is 2.9.1+cu128, not 2.9.10"),
    ("version", "nccl", "2.9", SIGHT, UNKNOWN, "nccl could not be seen"),
    ("file", "sitecustomize.py", sha256("good"), SIGHT, HOLDS, f"sha256 of sitecustomize.py is {sha256('good')[:12]}"),
    ("file", "sitecustomize.py", sha256("other"), SIGHT, BROKEN, f"not {sha256('other')[:12]}"),
    ("file", "gone.py", sha256("x"), SIGHT, BROKEN, "missing"),
    ("file", "never-asked.py", sha256("x"), SIGHT, UNKNOWN, "not looked at"),
    ("revision", "", HEAD, SIGHT, HOLDS, "the checkout's revision is 62028850ca70"),
    ("revision", "", HEAD[:8], SIGHT, HOLDS, "62028850ca70"),
    ("revision", "", OTHER, SIGHT, BROKEN, "aae793a0c0f4 (Faster) is not part of that"),
    ("revision", "", "bad1", SIGHT, BROKEN, "it has no commit bad1"),
    ("revision", "", HEAD, changed(checkout=None), UNKNOWN, "could not be seen"),
    (
        "revision",
        "",
        HEAD,
        changed(checkout=CheckoutSeen(revision="", problem="no repository")),
        UNKNOWN,
        "no repository",
    ),
    ("revision", "commit", "aae793a", SIGHT, HOLDS, "aae793a0c0f4 is there: Faster"),
    ("revision", "commit", "bad1", SIGHT, BROKEN, "it has no commit bad1"),
    ("revision", "commit", "aae793a", NOT_LOOKED, UNKNOWN, "not aae793a"),
    ("revision", "branch", "main", SIGHT, HOLDS, "main is at 62028850ca70, checked out"),
    ("revision", "branch", "gone", SIGHT, BROKEN, "there is no branch gone"),
    ("revision", "branch", "main", NOT_LOOKED, UNKNOWN, "could not be seen"),
    ("checkout", "", "clean", SIGHT, HOLDS, "clean"),
    ("checkout", "", "clean", changed(checkout=DIRTY), BROKEN, "d1, not clean"),
    ("checkout", "", "d1", changed(checkout=DIRTY), HOLDS, "d1"),
    ("checkout", "", "clean", changed(checkout=None), UNKNOWN, "could not be seen"),
    ("patch", "a.diff", "applied", SIGHT, HOLDS, "a.diff is applied"),
    ("patch", "a.diff", "not applied", SIGHT, BROKEN, "a.diff is applied"),
    ("patch", "b.diff", "applied", SIGHT, BROKEN, "b.diff is not applied"),
    ("patch", "b.diff", "not applied", SIGHT, HOLDS, "b.diff is not applied"),
    ("patch", "c.diff", "applied", SIGHT, BROKEN, "does not fit"),
    ("patch", "d.diff", "not applied", SIGHT, BROKEN, "d.diff is not there"),
    ("patch", "a.diff", "applied", NOT_LOOKED, UNKNOWN, "no checkout"),
    ("server", "", "stopped", SIGHT, HOLDS, "the server is stopped"),
    ("server", "", "running", SIGHT, BROKEN, "the server is stopped, not running"),
    ("server", "", "running", changed(port_open=True), HOLDS, "the server is running"),
    ("server", "port 8000", "running", SIGHT, HOLDS, "port 8000: pid 9 (python)"),
    ("server", "port 8000", "stopped", SIGHT, BROKEN, "pid 9 (python)"),
    ("server", "port 30000", "running", SIGHT, BROKEN, "nothing is there: port 30000"),
    ("server", "port 30000", "stopped", SIGHT, HOLDS, "nothing is there"),
    ("server", "pid 10", "running", SIGHT, BROKEN, "nothing is there: pid 10"),
    ("server", "pid 9", "running", SIGHT, HOLDS, "pid 9 is python"),
    ("server", "pid 11", "running", SIGHT, UNKNOWN, "not looked at"),
    ("flags", "", "--tp-size 8 --trust-remote-code --mem-fraction-static 0.880", SIGHT, HOLDS, "these flags"),
    ("flags", "", "--tp-size 4 --model-path /models/k", SIGHT, BROKEN, "it runs with --tp-size 8, not 4"),
    ("flags", "", "--tp-size 8", NOT_LOOKED, UNKNOWN, "no server answers"),
    ("gpus", "", "8 x RTX PRO 6000", SIGHT, HOLDS, "8 x RTX PRO 6000, 96 GB each"),
    ("gpus", "", "4 x RTX PRO 6000", SIGHT, BROKEN, "8 x RTX PRO 6000, not 4 x"),
    ("gpus", "", "8 x RTX PRO 6000", changed(gpus=None), UNKNOWN, "could not be seen"),
    ("gpu-memory", "", "95.6", SIGHT, HOLDS, "each GPU has 96 GB"),
    ("gpu-memory", "", "80", SIGHT, BROKEN, "each GPU has 96 GB"),
    ("gpu-memory", "", "80", replace(SIGHT, facts={}), UNKNOWN, "could not be seen"),
    ("disk", "", "500", SIGHT, HOLDS, "500 GB are free"),
    ("disk", "", "900", SIGHT, BROKEN, "500 GB are free"),
    ("disk", "", "900", changed(disk_free_gb=None), UNKNOWN, "could not be looked at"),
    ("environment", "cu128", "", SIGHT, HOLDS, "cu128 is there"),
    ("environment", "cu13", "", SIGHT, BROKEN, "cu13 is not there"),
    ("environment", "other", "", SIGHT, UNKNOWN, "optagent.toml names no other, only cu128, cu13"),
    ("path", "/m", "", SIGHT, HOLDS, "a folder is there"),
    ("path", "/f", "", SIGHT, HOLDS, "a file is there, 12 bytes"),
    ("path", "/n", "", SIGHT, BROKEN, "/n is not there"),
    ("path", "/x", "", SIGHT, UNKNOWN, "may not be looked at"),
    ("path", "/q", "", SIGHT, UNKNOWN, "not looked at"),
    ("log", "a.log", "", SIGHT, HOLDS, "crashed during graph-capture; gpu-oom-weights: out of memory"),
    ("log", "a.log", "crashed", SIGHT, HOLDS, "crashed"),
    ("log", "a.log", "gpu-oom-weights", SIGHT, HOLDS, "crashed"),
    ("log", "a.log", "ready", SIGHT, BROKEN, "not ready"),
    ("log", "gone.log", "", SIGHT, BROKEN, "gone.log is not there"),
    ("log", "run.log", "", SIGHT, UNKNOWN, "not looked at"),
    ("result", "r.jsonl", "output_throughput=91", SIGHT, HOLDS, "output_throughput is 90 in it, 91 is claimed"),
    ("result", "r.jsonl", "output_throughput=120", SIGHT, BROKEN, "90 in it, 120 is claimed"),
    ("result", "r.jsonl", "median_tpot_ms=3", SIGHT, BROKEN, "it has no median_tpot_ms"),
    ("result", "r.jsonl", "", SIGHT, HOLDS, "a result is there"),
    ("result", "none.jsonl", "output_throughput=1", SIGHT, BROKEN, "no result can be read"),
    ("result", "q.jsonl", "", SIGHT, UNKNOWN, "not looked at"),
    ("baseline", "output_throughput", "89.5", SIGHT, HOLDS, "measured 89, -0.6% against the claim"),
    ("baseline", "output_throughput", "80", SIGHT, BROKEN, "+11.3%"),
    ("baseline", "output_throughput", "about ninety", SIGHT, UNKNOWN, "not a number"),
    ("baseline", "output_throughput", "nan", SIGHT, UNKNOWN, "not a number"),
    ("baseline", "output_throughput", "0", SIGHT, BROKEN, "inf"),
    ("baseline", "median_tpot_ms", "11", SIGHT, UNKNOWN, "not measured since"),
    (
        "baseline",
        "output_throughput",
        "89",
        replace(SIGHT, elsewhere="on an H100"),
        UNKNOWN,
        "on an H100: no baseline here",
    ),
    ("experiment", "E2", "keep 0.091", SIGHT, HOLDS, "the journal says keep +9.1%"),
    ("experiment", "E2", "keep", SIGHT, HOLDS, "keep"),
    ("experiment", "E2", "keep 0.2", SIGHT, BROKEN, "the journal says keep +9.1%"),
    ("experiment", "E2", "revert 0.091", SIGHT, BROKEN, "the journal says keep"),
    ("experiment", "E2", "keep 0.091", NOT_LOOKED, UNKNOWN, "not made here"),
    ("experiment", "X1", "keep", SIGHT, UNKNOWN, "taken over unverified"),
    ("experiment", "E3", "keep", SIGHT, UNKNOWN, "not made here"),
    ("dead-end", "d1", "cuda>=13", SIGHT, HOLDS, "it still waits: cuda is 12.8"),
    ("dead-end", "d1", "cuda>=12.8", SIGHT, BROKEN, "what it waits for is there (cuda is 12.8)"),
    ("dead-end", "d1", "nccl>=2.30", SIGHT, UNKNOWN, "nccl is not known"),
    ("dead-end", "d1", "when pigs fly", SIGHT, UNKNOWN, "no condition that can be looked at"),
    ("dead-end", "d1", "", SIGHT, HOLDS, "the journal has it"),
    ("dead-end", "d2", "cuda>=12", SIGHT, HOLDS, "it was reopened: cuda>=13 now holds"),
    ("dead-end", "d3", "cuda>=13", SIGHT, BROKEN, "no such dead end any more"),
    ("dead-end", "d3", "cuda>=13", NOT_LOOKED, HOLDS, "it still waits"),
    ("dead-end", "d3", "", NOT_LOOKED, UNKNOWN, "not in the journal yet"),
    ("question", "Q1", "", SIGHT, HOLDS, "it is open"),
    ("question", "Q2", "", SIGHT, HOLDS, "it was answered: approve"),
    ("question", "Q2", "decline", SIGHT, BROKEN, "the journal has the answer approve"),
    ("question", "Q3", "", SIGHT, HOLDS, "withdrawn"),
    ("question", "Q9", "", SIGHT, UNKNOWN, "no such question"),
    ("question", "Q1", "", NOT_LOOKED, UNKNOWN, "no such question"),
    ("note", "", "", SIGHT, UNKNOWN, "nothing to look at"),
    ("note", "tok/s", "89", SIGHT, UNKNOWN, "of which workload"),
    ("a kind of a later format", "", "", SIGHT, UNKNOWN, "nothing to look at"),
]


@pytest.mark.parametrize(("kind", "subject", "expected", "sight", "outcome", "said"), CASES)
def test_a_claim_holds_does_not_or_cannot_be_checked(
    kind: str, subject: str, expected: str, sight: Sight, outcome: Outcome, said: str
) -> None:
    found = check(kind, subject, expected, sight)
    assert (found.outcome, said in found.because) == (outcome, True), found.because
    if outcome is not UNKNOWN and not (kind == "dead-end" and subject == "d3"):
        assert found.evidence, "what was looked at is told"


def test_the_evidence_is_where_it_was_found() -> None:
    assert check("log", "a.log", "").evidence == ("a.log:7: CUDA out of memory",)
    assert check("experiment", "E2", "keep").evidence == ("journal: E2", "r.jsonl")
    assert check("baseline", "output_throughput", "89").evidence == ("E9", "runs/E9.jsonl")
    assert check("checkout", "", "d1", changed(checkout=DIRTY)).evidence == ("git status: a.py",)
    running = check("server", "", "running", replace(SIGHT, world=SERVER))
    assert running.evidence == ("pid 7: python -m sglang.launch_server",)


@pytest.mark.parametrize(
    ("there", "here", "same"),
    [
        ("8 x NVIDIA H100 80GB HBM3", "8 x NVIDIA H100 80GB HBM3", True),
        ("8 x H100", "8 x NVIDIA H100 80GB HBM3", True),
        ("8x h100", "8 x NVIDIA H100 80GB HBM3", True),
        ("8 x H100", "8 x NVIDIA H200", False),
        ("8 x H100", "4 x NVIDIA H100 80GB HBM3", False),
        ("H100", "4 x NVIDIA H100 80GB HBM3", True),
        ("8 x RTX PRO 6000 Blackwell Server Edition", "8 x NVIDIA RTX PRO 6000 Blackwell Workstation Edition", False),
    ],
)
def test_gpus_are_compared_as_people_write_them(there: str, here: str, same: bool) -> None:
    assert same_gpus(there, here) is same


HANDOFF = Handoff(
    "H1", "c", "2026-11-30T08:00:00Z",
    baseline=Baseline(BASE, Measurement("output_throughput", 90.0, evidence=("E2", "r.jsonl", "gate.gz"))),
    claims=(Claim("C1", "up", "server", "", "running"), Claim("C2", "90", "baseline", "output_throughput", "90")),
    attempts=(Attempt("E2", "t", "keep", effect=0.091),), dead_ends=(DeadEnd("d1", "Fusion", "x", retry_when="cuda>=13"),),
    in_flight=(InFlight("E3", "t", log="a.log"), InFlight("E4", "no log")), questions=(Question("Q1", "r", "t", "w"),),
)  # fmt: skip


def test_a_handoff_states_more_than_its_claims() -> None:
    assert [(c.kind, c.subject, c.expected) for c in stated(HANDOFF)] == [
        ("server", "", "running"), ("baseline", "output_throughput", "90"), ("environment", "cu128", ""),
        ("revision", "commit", HEAD), ("path", "/models/k", ""),
        ("flags", "", "--model-path /models/k --tp-size 8 --trust-remote-code"), ("result", "r.jsonl", "output_throughput=90"),
        ("log", "a.log", ""), ("experiment", "E2", "keep 0.091"), ("dead-end", "d1", "cuda>=13"), ("question", "Q1", ""),
    ]  # fmt: skip


def test_only_what_the_probe_does_not_show_is_looked_up() -> None:
    assert to_look_up(stated(HANDOFF), WORLD) == LookUp(paths=["/models/k"], logs=["a.log"], benchmarks=["r.jsonl"])
    assert to_look_up(stated(HANDOFF), SERVER).server_flags
    claims = [
        Claim("a", "", "revision", "", OTHER), Claim("b", "", "revision", "branch", "x"), Claim("c", "", "server", "port 8000"),
        Claim("d", "", "server", "pid 9"), Claim("e", "", "patch", "a.diff"), Claim("f", "", "version", "cuda", "1"),
        Claim("g", "", "revision", "", HEAD[:9]), Claim("h", "", "note", "port 1"),
    ]  # fmt: skip
    assert to_look_up(claims, WORLD) == LookUp(
        revisions=[OTHER], branches=["x"], ports=[8000], pids=[9], patches=["a.diff"]
    )
    assert to_look_up([Claim("v", "", "version", "cuda", "1")], WORLD) == LookUp()


def test_what_is_looked_up_is_bounded() -> None:
    claims = [Claim(str(n), "", "path", f"/p{n}") for n in range(500)]
    assert len(to_look_up(claims, WORLD).paths) == MOST

"""Handoffs that were written elsewhere: everything that does not carry over is named, told, recorded and handed on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from optagent.agent.config import CampaignConfig, parse_config
from optagent.agent.elsewhere import carried, carried_dead_ends, differences
from optagent.agent.hand_off import write_handoff
from optagent.agent.handoff.model import Handoff, LeftOut
from optagent.agent.handoff.read import read_handoff
from optagent.agent.handoff.render import render_handoff
from optagent.agent.nodes import Round, decide_node, orient_node, reconcile_node
from optagent.agent.reconcile import facts_of
from optagent.agent.session import LedgerJournal, Session
from optagent.tools.calls.facts import LookedUp
from optagent.tools.calls.files import ReadText
from optagent.tools.calls.world import CheckoutSeen, Gpu, World
from optagent.tools.dry import DryToolbox
from optagent.tools.journal_store import MemoryJournal
from optagent.tools.live import LiveToolbox
from optagent.tools.recording import RecordingToolbox, as_json
from optagent.tools.stub import RecordedCall, Recording, ScriptedToolbox

DOCUMENTS = Path(__file__).parent / "documents"
PLAN = "# Plan\n\n## 1. Pages\n\n```yaml\nid: page-size\nstatus: open\nchange:\n  flags: {page-size: 64}\n```\n"
CONFIG = """
name = "here"
plan = "plan.md"
[deployment]
kind = "simulator"
[deployment.flags]
model-path = "/here/model"
tp-size = 8
"""
HEAD = "1" * 40
B200 = [
    Gpu(index=n, name="NVIDIA B200", memory_total_gb=180, memory_used_gb=1, compute_capability="10.0") for n in range(8)
]
HERE = World(
    gpus=B200, versions={"cuda": "12.8", "sglang": "0.5.9", "nccl": "2.28"}, environments={"default": True},
    checkout=CheckoutSeen(revision=HEAD, branch="main"), host="serve-2", user="jo", folder="/srv/jo/new-name",
)  # fmt: skip
NOTHING = {"what": "nothing"}


class Listener:
    def __init__(self) -> None:
        self.told: list[str] = []

    def tell(self, what: str, text: str) -> None:
        self.told.append(f"{what}: {text}")

    def now(self, text: str) -> None: ...
    def detail(self, text: str) -> None: ...


@dataclass
class Campaign:
    """A campaign folder with one handoff in it, in a scripted world."""

    folder: Path
    world: World = HERE
    looked: LookedUp = field(default_factory=LookedUp)
    journal: LedgerJournal = field(default_factory=lambda: LedgerJournal(MemoryJournal()))
    listener: Listener = field(default_factory=Listener)

    @property
    def config(self) -> CampaignConfig:
        return parse_config(CONFIG)

    def session(self) -> Session:
        calls = (
            RecordedCall(1, "probe", None, as_json(self.world)),
            RecordedCall(2, "look_up", None, as_json(self.looked)),
        )
        below = LiveToolbox(self.folder, self.config.deployment, lambda text: None)
        scripted = ScriptedToolbox(Recording("world", calls, {}, [], {}, {}), below)
        return Session(self.config, RecordingToolbox(DryToolbox(scripted), self.journal), self.journal, self.listener)

    def sit(self) -> Handoff:
        """A sitting that looks and decides, and writes its handoff at once; what that says."""
        session = self.session()
        session.journal.append("sitting", {"id": f"S{len(session.ledger.sittings)}"})
        round_ = Round(session)
        orient_node({}, round_)
        reconcile_node({}, round_)
        decide_node({}, round_)
        assert round_.decision is not None
        path = write_handoff(session, self.world, round_.decision.standings, "tested")
        text = session.toolbox.read_text(ReadText(path=path)).text
        (self.folder / path).write_text(text or "", encoding="utf-8")
        return read_handoff(text or "", path)


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    (tmp_path / "handoffs").mkdir()
    (tmp_path / "plan.md").write_text(PLAN, encoding="utf-8")
    return Campaign(tmp_path)


def put(campaign: Campaign, document: str, name: str = "0001-2026-10-02.md") -> None:
    shutil.copy(DOCUMENTS / document, campaign.folder / "handoffs" / name)


def lost(campaign: Campaign) -> list[dict[str, Any]]:
    return [d for e in campaign.journal.entries() if e.kind == "took-over" for d in e.body.get("lost", [])]


def h100_looked() -> LookedUp:
    return LookedUp.model_validate({
        "paths": {"/home/marta/models/kimi-k2.5": NOTHING}, "logs": {".optagent/logs/E0009-candidate-1.log": {"exists": False}},
        "benchmarks": {".optagent/runs/E0004-candidate-1.jsonl": None},
        "revisions": {"9f3c21d07b6e4a55c0d1e2f30415263748596a7b": {}},
    })  # fmt: skip


def test_a_handoff_of_a_machine_with_other_gpus(campaign: Campaign) -> None:
    put(campaign, "handoff-h100.md")
    campaign.looked = h100_looked()
    handed_on = campaign.sit()
    named = {d["what"]: (d["there"], d["here"]) for d in lost(campaign)}
    assert named == {
        "machine": ("gpu-h100-07", "serve-2"), "user": ("marta", "jo"),
        "folder": ("/home/marta/campaigns/kimi", "/srv/jo/new-name"),
        "GPUs": ("8 x NVIDIA H100 80GB HBM3", "8 x NVIDIA B200"), "cuda": ("12.6", "12.8"),
        "commit": ("9f3c21d07b6e", HEAD[:12]), "path": ("/home/marta/models/kimi-k2.5", ""),
        "result": (".optagent/runs/E0004-candidate-1.jsonl", ""), "log": (".optagent/logs/E0009-candidate-1.log", ""),
    }  # fmt: skip
    for what, (there, _) in named.items():
        assert any(
            line.startswith(f"note: does not carry over: {what}: there {there}") for line in campaign.listener.told
        ), what
        assert any(
            lesson.text.startswith(f"Not carried over from H0012: {what}: there {there}")
            for lesson in handed_on.lessons
        ), what


def test_what_was_measured_on_other_gpus_is_no_baseline_here_and_no_dead_end(campaign: Campaign) -> None:
    put(campaign, "handoff-h100.md")
    campaign.looked = h100_looked()
    campaign.sit()
    ledger = campaign.journal.ledger
    assert ledger.baseline is not None
    assert ledger.baseline.measurement is None
    assert ledger.baseline.configuration.flags == {"model-path": "/here/model", "tp-size": 8}, "that of optagent.toml"
    assert ledger.dead_ends["fp4"].retry_when == "cuda>=13", "what has no kernels has none on these either"
    assert ledger.reopened == {"page-size": "reopened: gpu.model!=NVIDIA-H100-80GB-HBM3 now holds"}
    assert any(a.experiment == "E0004" for a in ledger.attempts), "what it told of is not forgotten"


def test_where_the_commit_is_here_the_configuration_carries_over_without_its_number(campaign: Campaign) -> None:
    put(campaign, "handoff-h100.md")
    commit = "9f3c21d07b6e4a55c0d1e2f30415263748596a7b"
    campaign.world = HERE.model_copy(update={"checkout": CheckoutSeen(revision=commit, branch="main")})
    campaign.sit()
    baseline = campaign.journal.ledger.baseline
    assert baseline is not None
    assert (baseline.configuration.flags["attention-backend"], baseline.measurement) == ("fa3", None)
    assert "commit" not in {d["what"] for d in lost(campaign)}


def test_a_campaign_in_another_folder_keeps_its_numbers_and_says_which_paths_are_gone(campaign: Campaign) -> None:
    put(campaign, "handoff-moved.md")
    campaign.looked = LookedUp.model_validate({"paths": {"/srv/jo/old-name/model": NOTHING}})
    handed_on = campaign.sit()
    assert [d["what"] for d in lost(campaign)] == ["folder", "path"]
    baseline = campaign.journal.ledger.baseline
    assert baseline is not None
    assert baseline.measurement is not None
    assert baseline.measurement.value == 812.0
    assert handed_on.place is not None
    assert handed_on.place.folder == "/srv/jo/new-name"
    assert any(
        "/srv/jo/old-name/model, not here; what needs it cannot run" in lesson.text for lesson in handed_on.lessons
    )


def test_it_is_told_once_where_it_was_handed_on(campaign: Campaign) -> None:
    put(campaign, "handoff-moved.md")
    campaign.sit()
    before = len(lost(campaign))
    campaign.listener.told.clear()
    campaign.sit()
    assert before == len(lost(campaign)) == 1
    assert not [line for line in campaign.listener.told if "carry over" in line]


def test_a_campaign_that_was_moved_with_its_journal_to_other_gpus_measures_anew(campaign: Campaign) -> None:
    put(campaign, "handoff-moved.md")
    campaign.sit()
    h200 = [g.model_copy(update={"name": "NVIDIA H200"}) for g in B200]
    campaign.world = HERE.model_copy(update={"gpus": h200, "host": "other", "folder": "/home/jo/c"})
    campaign.journal.ledger.noise["default"] = replace(campaign.journal.ledger.spread_in("default"))
    handed_on = campaign.sit()
    ledger = campaign.journal.ledger
    assert ledger.baseline is not None
    assert ledger.baseline.measurement is None
    assert ledger.noise == {}
    assert any("GPUs: there 8 x NVIDIA B200, here 8 x NVIDIA H200" in lesson.text for lesson in handed_on.lessons)
    assert ledger.taken_over == ["H0003", "H0002"], "the second time it is its own, with its journal"
    campaign.sit()
    assert ledger.taken_over == ["H0003", "H0002"]


def test_a_colleagues_notes(campaign: Campaign) -> None:
    put(campaign, "handoff-colleague.md")
    campaign.looked = LookedUp.model_validate({
        "paths": {"/data/models/kimi-k2.5": NOTHING}, "logs": {"logs/last.log": {"exists": False}},
        "benchmarks": {"bench/best.jsonl": None}, "ports": {"30017": None}, "branches": {"perf/all-reduce": None},
        "patches": {"patches/one-shot.diff": "fits", "patches/verify.diff": "fits"}, "revisions": {"deadbee1234": {}},
    })  # fmt: skip
    handed_on = campaign.sit()
    assert {d["what"] for d in lost(campaign)} == {"GPUs", "cuda", "path", "result", "log"}
    broken = [line for line in campaign.listener.told if line.startswith("bad: ")]
    for said in (
        "nothing is there: port 30017", "there is no branch perf/all-reduce", "it has no commit deadbee1234",
        "patches/one-shot.diff is not applied", "no result can be read there", "the log logs/last.log is not there",
        "/data/models/kimi-k2.5 is not there", "what is there is 8 x NVIDIA B200, not 8 x H100 80GB",
    ):  # fmt: skip
        assert any(said in line for line in broken), said
    assert not any(line.endswith("verify.diff is not applied") for line in broken), "as it says"
    assert not any(lesson.verified for lesson in handed_on.lessons if "Not carried over" not in lesson.text)


def unlooked(handoff: Handoff, world: World, environments: Sequence[str] = ("default",)) -> list[str]:
    return [d.what for d in differences(handoff, world, [], environments)]


def test_what_is_not_known_is_no_difference() -> None:
    handoff = read_handoff((DOCUMENTS / "handoff-h100.md").read_text(encoding="utf-8"), "h.md")
    assert unlooked(handoff, World(environments={"default": True})) == []
    assert unlooked(replace(handoff, place=None, claims=()), HERE) == []


def test_the_same_machine_is_no_difference() -> None:
    handoff = read_handoff((DOCUMENTS / "handoff-moved.md").read_text(encoding="utf-8"), "h.md")
    assert unlooked(handoff, HERE.model_copy(update={"folder": "/srv/jo/old-name"})) == []


def test_an_environment_that_is_not_named_here_cannot_launch_the_baseline() -> None:
    handoff = read_handoff((DOCUMENTS / "handoff-moved.md").read_text(encoding="utf-8"), "h.md")
    here = HERE.model_copy(update={"folder": "/srv/jo/old-name"})
    found = differences(handoff, here, [], ["cu13"])
    assert [d.what for d in found] == ["environment"]
    assert carried(handoff.baseline, found) is None


def test_fewer_gpus_of_the_same_kind_leave_the_numbers_as_they_are() -> None:
    handoff = read_handoff((DOCUMENTS / "handoff-moved.md").read_text(encoding="utf-8"), "h.md")
    found = differences(handoff, HERE.model_copy(update={"folder": "", "gpus": B200[:4]}), [], ["default"])
    assert [d.what for d in found] == ["number of GPUs"]
    assert carried(handoff.baseline, found) == handoff.baseline
    assert carried_dead_ends(handoff.dead_ends, found) == list(handoff.dead_ends)


def test_a_simulated_campaign_says_nothing_of_a_real_one() -> None:
    handoff = replace(
        read_handoff((DOCUMENTS / "handoff-moved.md").read_text(encoding="utf-8"), "h.md"), simulated=True
    )
    found = differences(handoff, HERE.model_copy(update={"folder": ""}), [], ["default"])
    assert [d.what for d in found] == ["deployment"]
    kept = carried(handoff.baseline, found)
    assert kept is not None
    assert kept.measurement is None


def test_a_file_that_the_handoff_was_too_small_for_is_named() -> None:
    handoff = read_handoff((DOCUMENTS / "handoff-moved.md").read_text(encoding="utf-8"), "h.md")
    left = replace(handoff, left_out=(LeftOut("baseline: file moe.json", 1, "the journal"), LeftOut("lessons", 3, "x")))
    found = differences(left, HERE.model_copy(update={"folder": ""}), [], ["default"])
    assert [d.what for d in found] == ["file moe.json"]


def test_another_handoff_of_the_same_id_is_taken_over(campaign: Campaign) -> None:
    put(campaign, "handoff-moved.md")
    campaign.sit()
    text = (DOCUMENTS / "handoff-h100.md").read_text(encoding="utf-8").replace("id: H0012", "id: H0002")
    (campaign.folder / "handoffs" / "0009-from-marta.md").write_text(text, encoding="utf-8")
    assert "H0002" in campaign.journal.ledger.handoffs
    campaign.sit()
    assert "fp4" in campaign.journal.ledger.dead_ends
    assert campaign.journal.ledger.taken_over[-1] == "H0002 of 2026-10-02T09:15:00Z"
    before = campaign.journal.last_seq()
    campaign.sit()
    assert [e.kind for e in campaign.journal.entries(before)].count("took-over") == 0


def test_what_is_lost_is_plain_json(campaign: Campaign) -> None:
    put(campaign, "handoff-h100.md")
    campaign.sit()
    assert json.loads(json.dumps(lost(campaign))) == lost(campaign)
    assert "gpu.model" in facts_of(HERE, "default")


def test_the_documents_read_back() -> None:
    for name in ("handoff-h100.md", "handoff-moved.md"):
        handoff = read_handoff((DOCUMENTS / name).read_text(encoding="utf-8"), name)
        assert read_handoff(render_handoff(handoff), name) == handoff

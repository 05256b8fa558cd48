"""Four patches that cheat, each on a real server that is faster for a flag: the gate sees every one of them.

Each spoils the answers in SGLang's own Python, in another way, and each looks like a gain to whoever only measures. That
the flag alone passes is a part of the campaign's test.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from optagent.agent.config import CampaignConfig, load_config
from optagent.agent.gates.limits import Asked, limits_for
from optagent.agent.gates.prompts import PROMPTS
from optagent.agent.gates.rules import Held, judge_examined
from optagent.agent.gates.texts import TEXTS
from optagent.agent.numerics import between
from optagent.tools.calls.bench import Bench, BenchRun
from optagent.tools.calls.configuration import Configuration
from optagent.tools.calls.gate import Examine, Examined
from optagent.tools.calls.patch import ApplyPatch, DropPatch
from optagent.tools.calls.world import ProbeWorld

if TYPE_CHECKING:
    from conftest import Prepare, Server, ServerOf

pytestmark = pytest.mark.sglang

CHANGES = Path(__file__).parent / "campaign" / "plans" / "changes"


@dataclass
class Gated:
    """A campaign's server, and what its poor baseline says and gives."""

    server: Server
    config: CampaignConfig
    baseline: Configuration
    examined: Examined
    throughput: float

    @property
    def asked(self) -> Asked:
        return Asked(self.config.gate.prompts, self.config.gate.concurrency)


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory, prepare: Prepare, server_of: ServerOf) -> Gated:
    campaign = prepare(tmp_path_factory.mktemp("gates") / "campaign")
    config = load_config(campaign)
    server = server_of(campaign, config.deployment)
    checkout = server.toolbox.probe(ProbeWorld(environment="default", known=[])).checkout
    assert checkout is not None
    baseline = replace(server.baseline, revision=checkout.revision)
    examined, run = examined_and_measured(server, config, baseline, "baseline", [])
    assert judge_examined(examined, Asked(config.gate.prompts, config.gate.concurrency)).passed
    assert run.valid, run.invalid_because
    return Gated(server, config, baseline, examined, run.metrics["output_throughput"])


@pytest.fixture
def cheat(gated: Gated, request: pytest.FixtureRequest) -> Iterator[Configuration]:
    """The baseline with more running requests and the patch of this name, which is gone again afterwards."""
    name, base, tools = request.param, gated.baseline.revision, gated.server.toolbox
    applied = tools.apply_patch(
        ApplyPatch(key=name, experiment=name, base=base, diff=(CHANGES / f"{name}.diff").read_text(), message=name)
    )
    assert applied.revision is not None, applied.problem
    faster = gated.server.with_flags(max_running_requests=16)
    yield replace(faster, revision=applied.revision)
    assert tools.drop_patch(DropPatch(key=f"{name}:drop", experiment=name, base=base)).revision == base


@pytest.mark.parametrize(
    ("cheat", "seen"),
    [
        pytest.param("cheat-truncate", "are shorter than asked although they ended by length", id="truncated"),
        pytest.param("cheat-repeat", "answers repeat themselves", id="repeated"),
        pytest.param("cheat-cache", "answers come from a cache", id="cached"),
        pytest.param("cheat-round", "the probabilities of given texts are not the baseline's", id="rounded"),
    ],
    indirect=["cheat"],
)
def test_a_cheat_is_faster_than_the_baseline_and_caught(gated: Gated, cheat: Configuration, seen: str) -> None:
    name = cheat.revision[:12]
    examined, run = examined_and_measured(gated.server, gated.config, cheat, name, [gated.examined.file])
    assert run.metrics["output_throughput"] > gated.throughput

    (comparison,) = examined.comparisons
    limits = limits_for(between(gated.baseline, cheat), [], gated.asked)
    result = judge_examined(examined, gated.asked, [Held(comparison, gated.examined, limits)])
    assert not result.passed
    assert seen in "; ".join(result.problems)


def examined_and_measured(
    server: Server, config: CampaignConfig, configuration: Configuration, name: str, references: list[str]
) -> tuple[Examined, BenchRun]:
    """What a launch of the configuration says, and one run against it."""
    launched = server.launch(configuration)
    try:
        assert launched.url is not None, launched
        gate = config.gate
        examined = server.toolbox.examine(Examine(
            key=f"{name}:gate", url=launched.url, prompts=list(PROMPTS[: gate.prompts]), texts=list(TEXTS[: gate.texts]),
            max_tokens=gate.max_tokens, concurrency=gate.concurrency, file=f"gates/{name}.json.gz", references=references,
        ))  # fmt: skip
        run = server.toolbox.bench(Bench(
            key=f"{name}:bench", run=name, url=launched.url, workload=config.workload, seed=1,
            result_file=f"runs/{name}.jsonl",
        ))  # fmt: skip
    finally:
        server.stop()
    return examined, run

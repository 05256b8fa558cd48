"""What has to be right before a sitting begins: the same refusal from `continue` and `--dry-run`, and nothing is left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from optagent.agent.commands.going_on import go_on
from optagent.agent.commands.preflight import check_usable
from optagent.agent.commands.workspace import Silent, find_workspace
from optagent.agent.errors import BadInput
from optagent.agent.experiments import Run
from optagent.agent.jsonable import to_body
from optagent.agent.records import Baseline
from optagent.tools.calls.configuration import Configuration
from optagent.tools.journal_store import JournalStore

FAKES = Path(__file__).parent / "fakes"
CONFIG = f"""name = "stub"

[workload]
num_prompts = 2

[deployment]
kind = "sglang"
source = "source"

[deployment.environments.default]
python = "{sys.executable}"
pythonpath = ["{FAKES}"]

[deployment.flags]
model-path = "m"
tp-size = 8
"""
PLAN = """# One item

## 1. CUDA graphs up to batch 64

```yaml
id: graphs
status: open
change:
  flags:
    cuda-graph-max-bs: 64
```
"""


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    """A campaign on a stub of SGLang, with a checkout that has the package."""
    folder = tmp_path / "campaign"
    (folder / "plans").mkdir(parents=True)
    (folder / "optagent.toml").write_text(CONFIG)
    (folder / "plans" / "plan.md").write_text(PLAN)
    (folder / "source" / "python" / "sglang").mkdir(parents=True)
    (folder / "source" / "python" / "sglang" / "__init__.py").write_text("")
    git = ["git", "-C", str(folder / "source"), "-c", "user.name=n", "-c", "user.email=e"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    (folder / "no-program").write_text("text")
    return folder


def listing(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if ".git/" not in str(path)}


CASES = [
    (f'python = "{sys.executable}"\n', "", ":10: deployment.environments.default.python: environment 'default' has no"),
    (f'"{sys.executable}"', '"/nix/python"', ":11: deployment.environments.default.python: /nix/python does not run"),
    (f'"{sys.executable}"', '"/bin/cat"', ":11: deployment.environments.default.python: /bin/cat does not run"),
    (f'"{sys.executable}"', '"no-program"', "no-program does not run: Permission denied; expected a Python that has"),
    ('source = "source"', 'source = "nowhere"', ":8: deployment.source: "),
    ('source = "source"', 'source = "plans"', ":8: deployment.source: "),
    ('source = "source"', 'source = "source"\nsource_path = "src"', ":9: deployment.source_path: there is no folder"),
    ('source = "source"', 'source = "source"\nsource_path = "."', ":9: deployment.source_path: "),
    ('source = "source"', 'source = "source"\nsource_path = "../x"', ":9: deployment.source_path: "),
    ("tp-size = 8", "tp-sise = 8", ":16: deployment.flags.tp-sise: the installed server does not know --tp-sise; did you mean"),
    ("tp-size = 8", "port = 31000", ":16: deployment.flags.port: the server is always given deployment.port"),
    ("tp-size = 8", 'host = "::"', ":16: deployment.flags.host: the server is always given deployment.host"),
    ('kind = "sglang"', 'kind = "sglang"\nhost = "192.0.2.1"', ":8: deployment.host: 192.0.2.1 is not this machine"),
    ("num_prompts = 2", 'dataset = "custom"\nprompts = "none.jsonl"', ":5: workload.prompts: none.jsonl cannot be read"),
]  # fmt: skip


@pytest.mark.parametrize("dry_run", [True, False], ids=["dry-run", "continue"])
@pytest.mark.parametrize(("old", "new", "says"), CASES)
def test_what_cannot_be_used_is_refused_before_anything_is_done(
    campaign: Path, old: str, new: str, says: str, dry_run: bool
) -> None:
    assert old in CONFIG
    (campaign / "optagent.toml").write_text(CONFIG.replace(old, new, 1))
    before = listing(campaign)
    with pytest.raises(BadInput) as told:
        go_on(campaign, steps=1, dry_run=dry_run, as_json=True, record=None, stub=None)
    assert says in str(told.value)
    assert str(told.value).startswith("optagent.toml:")
    assert told.value.exit_status == 2
    assert listing(campaign) == before


def test_what_is_right_passes_and_leaves_nothing(campaign: Path) -> None:
    before = listing(campaign)
    check_usable(find_workspace(campaign), Silent())
    assert listing(campaign) == before


def measured(campaign: Path) -> None:
    """Give the campaign a baseline that was measured once."""
    configuration = Configuration("default", {"model-path": "m", "gone-since": 1})
    run = Run("baseline", 1, True, 100.0)
    (campaign / ".optagent").mkdir()
    with JournalStore.open(campaign / ".optagent" / "journal.db", create=True) as store:
        store.append("sitting", {"id": "S001"}, at="2026-01-01T00:00:00Z")
        store.append("baseline", to_body(Baseline(configuration, None, "as configured")))
        experiment = {"id": "E0001", "title": "t", "base": configuration, "kind": "baseline", "repeats": 1, "goal": 1}
        store.append("experiment", to_body(experiment))
        store.append("run", {"experiment": "E0001", "run": to_body(run)})


def test_an_environment_that_was_there_before_is_asked_about_instead(
    campaign: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(campaign)
    (campaign / "optagent.toml").write_text(CONFIG.replace(sys.executable, "/nix/python").replace("tp-size", "tp-sise"))
    assert go_on(campaign, steps=1, dry_run=True, as_json=True, record=None, stub=None) == 3
    assert '"baseline-moved"' in capsys.readouterr().out

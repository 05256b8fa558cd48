"""The command line: parse, call one function of the library, print.

Every command imports what it needs when it runs, so that those that only read start at once.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from optagent import __version__

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object for scripts instead of a screen.")
FILE = click.Path(path_type=Path)


@click.group(context_settings=CONTEXT)
@click.version_option(__version__, prog_name="optagent")
@click.option("-C", "root", type=FILE, default=Path(), metavar="DIR", help="The campaign folder (default: this one).")
@click.pass_context
def cli(context: click.Context, root: Path) -> None:
    """Carries an SGLang optimisation campaign from handoff to handoff.

    Measures before it believes, and asks only what it cannot find out.
    """
    context.obj = root


@cli.command("continue")
@click.option("--steps", type=click.IntRange(min=1), help="Stop in order after this many steps.")
@click.option("--dry-run", is_flag=True, help="Decide, say why, and do nothing.")
@as_json
@click.option("--record", type=FILE, metavar="FILE", help="Write every tool call of this sitting to a new file.")
@click.option("--stub", type=FILE, metavar="FILE", help="With --dry-run: decide against scripted tool results.")
@click.option("--detach", is_flag=True, help="Go on without this terminal, also after logout: see `optagent attach`.")
@click.pass_obj
def continue_(
    root: Path, steps: int | None, dry_run: bool, as_json: bool, record: Path | None, stub: Path | None, detach: bool
) -> int:
    """Go on if there are next steps, or stop and ask.

    Ctrl-C, SIGTERM and SIGHUP end it at the next safe point, with a handoff; a second one ends it at once. Nothing is lost.

    Exit status: 0 ended in order, 3 waits for an answer, 1 failed, 2 bad input, 4 another process holds the campaign,
    130 interrupted. With --detach 0 means that it runs.

    Example: optagent -C campaigns/kimi continue --steps 3
    """
    from optagent.agent.commands.going_on import go_on

    return go_on(root, steps=steps, dry_run=dry_run, as_json=as_json, record=record, stub=stub, detached=detach)


@cli.command(short_help="Show the sitting that is at work, live.")
@click.pass_obj
def attach(root: Path) -> int:
    """Show the sitting that is at work, in whichever terminal or in none, until it ends.

    Ctrl-C leaves it running. When none is at work, it says how the last one ended. Exit status: the sitting's, 130 when it
    was left running.

    Example: optagent attach
    """
    from optagent.agent.commands.attaching import attach

    return attach(root)


@cli.command()
@click.option("--now", is_flag=True, help="End at once: what runs is killed, and no handoff is written.")
@click.pass_obj
def stop(root: Path, now: bool) -> int:
    """Ask the sitting that is at work to end, and wait until it has.

    A launch or benchmark is broken off, the server stopped, a handoff written. Exit status 0: no sitting is at work now.

    Example: optagent stop
    """
    from optagent.agent.commands.stopping import stop

    return stop(root, at_once=now)


@cli.command()
@click.argument("question", metavar="ID")
@click.argument("text", metavar="OPTION|TEXT")
@as_json
@click.pass_obj
def answer(root: Path, question: str, text: str, as_json: bool) -> int:
    """Answer an open question; `optagent continue` then acts on it.

    Example: optagent answer Q1 approve
    """
    from optagent.agent.commands.answering import give_answer

    return give_answer(root, question, text, as_json=as_json)


@cli.command()
@as_json
@click.pass_obj
def status(root: Path, as_json: bool) -> int:
    """Where the campaign stands, in one screen.

    Objective, baseline, gain, plan, open questions, budget and the last steps.

    Example: optagent status --json
    """
    from optagent.agent.commands.status import show_status

    return show_status(root, as_json=as_json)


@cli.command(short_help="Show, check or explain the ranked plan.")
@click.argument("file", type=FILE, required=False)
@click.option(
    "--check", is_flag=True, help="Only report what is wrong, with line numbers; exit status 2 if anything is."
)
@click.option("--why", metavar="ITEM", help="Explain one item: its rank, the evidence, and what would change it.")
@as_json
@click.pass_obj
def plan(root: Path, file: Path | None, check: bool, why: str | None, as_json: bool) -> int:
    """Show the ranked plan as it is understood, check it, or explain an item.

    Example: optagent plan --check plans/eagle-fast-verify.md

    Example: optagent plan --why cuda-13
    """
    from optagent.agent.commands.planning import show_plan

    return show_plan(root, file, check=check, why=why, as_json=as_json)


@cli.command()
@click.argument("file", type=FILE, required=False)
@click.option("--write", is_flag=True, help="Write a handoff now, whatever state the campaign is in.")
@click.option("--check", is_flag=True, help="Hold every claim against the world and the journal, with the evidence.")
@click.option("--full", is_flag=True, help="Show all that the journal holds; written handoffs are kept short.")
@as_json
@click.pass_obj
def handoff(root: Path, file: Path | None, write: bool, check: bool, full: bool, as_json: bool) -> int:
    """Show the latest handoff, write a new one, or check it.

    FILE is another handoff, of this campaign or of anybody. Exit status of --check: 0 when nothing is found broken, 1 when a
    claim does not hold.

    Example: optagent handoff --check
    """
    from optagent.agent.commands.handing_off import handle_handoff

    return handle_handoff(root, file, write=write, check=check, full=full, as_json=as_json)


@cli.command(short_help="Say what an SGLang server's log means.")
@click.argument("log", metavar="LOG")
@click.option("--now", metavar="ISO8601", help="The time on the log's own clock: tells for how long it is silent.")
@click.option("--follow", is_flag=True, help="Read on as it grows, until it is ready, crashed, hung or stopped.")
@as_json
def diagnose(log: str, now: str | None, follow: bool, as_json: bool) -> int:
    """Say what an SGLang server's log means: status, first cause, what to do.

    LOG is a file, a compressed one (.gz), or - for the standard input. Exit status: 0 a diagnosis was given, 2 bad input
    (also a file that no SGLang server wrote, or a damaged .gz).

    Example: optagent diagnose server.log --now 2026-03-14T09:30:00
    """
    from optagent.agent.commands.diagnosing import diagnose_log

    return diagnose_log(log, now=now, as_json=as_json, follow=follow)


@cli.command()
@click.option("--workload", metavar="NAME", help="The campaign's own, or single-stream, throughput-8, ...")
@click.option("--runs", type=click.IntRange(min=1), default=3, show_default=True, help="How many benchmark runs.")
@click.option(
    "--seed", type=click.IntRange(0, 2**31), metavar="S", help="Of the first run's prompts; later runs count up."
)
@click.option("--url", metavar="URL", help="Another server than the deployment's, as in http://10.0.0.5:30000.")
@as_json
@click.pass_obj
def bench(root: Path, workload: str | None, runs: int, seed: int | None, url: str | None, as_json: bool) -> int:
    """Measure a server that runs already, here or elsewhere.

    Nothing is launched or stopped, and the results do not go into the journal: each run's file lies in .optagent/runs.
    Exit status: 0 all runs are valid, 1 some are not, 2 bad input, or nobody answers.

    Example: optagent bench --workload throughput-32 --runs 5
    """
    from optagent.agent.commands.benchmarking import benchmark

    return benchmark(root, workload=workload, runs=runs, seed=seed, url=url, as_json=as_json)


@cli.command()
@click.argument("file", default="-", metavar="[FILE]")
@click.argument("candidate", required=False, metavar="[CANDIDATE]")
@click.option("--metric", default="output_throughput", show_default=True, help="Of two result files: what is compared.")
@click.option(
    "--direction",
    type=click.Choice(["max", "min"]),
    help="Of two result files: whether more or less of the metric is better, where its name does not tell.",
)
@click.option(
    "--min-effect", type=float, default=0.02, show_default=True, help="Of two result files: the gain that counts."
)
@click.option(
    "--launch-sd", type=float, help="Of two result files: how much launches vary, as a fraction (0.01 = 1 %)."
)
@as_json
@click.pass_context
def verdict(
    context: click.Context,
    file: str,
    candidate: str | None,
    metric: str,
    direction: str | None,
    min_effect: float,
    launch_sd: float | None,
    as_json: bool,
) -> int:
    """Apply the campaign's rule to anybody's numbers.

    FILE holds a JSON object a line: {"id", "direction", "min_effect", "noise": {"launch_sd", "run_sd", "df"} or null,
    "pairs": [[baseline, candidate], ...], "guards": {metric: pairs}, "max_pairs"}; a verdict is printed for each. Spreads
    are fractions. Only "pairs" has to be there. Without FILE, or for -, it is the standard input.

    "direction" is "max" (usual) or "min", "min_effect" 0.02 where nothing is said, and "max_pairs", after which there is no
    "more", 12. "noise" needs launch_sd and df; run_sd is 0 unless runs within a launch were told apart. null for it, or for
    df: the pairs have to tell it, which takes four. A guard is a metric that must not get worse: its pairs, or {"pairs",
    "margin": 0.03, "direction": "min"}. Less of it is better unless it says otherwise or is a throughput, completed or
    another that bench_serving counts upwards. While a guard has no pairs nothing is kept.

    With a second file both hold results of bench_serving, the baseline's first, and the answer is which is better and
    whether one can tell.

    Example: optagent verdict baseline.jsonl candidate.jsonl --metric median_tpot_ms
    """
    if candidate is None:
        from optagent.agent.commands.giving_verdicts import give_verdicts

        for option in ("metric", "direction", "min_effect", "launch_sd"):
            if context.get_parameter_source(option) is click.core.ParameterSource.COMMANDLINE:
                name = f"--{option.replace('_', '-')}"
                raise click.UsageError(f"{name} is for two files of results; name the second one as well")
        return give_verdicts(file)
    from optagent.agent.commands.comparing_results import compare_results

    return compare_results(
        file,
        candidate,
        metric=metric,
        direction=direction,
        min_effect=min_effect,
        launch_sd=launch_sd,
        as_json=as_json,
    )


@cli.command(short_help="Run a recorded session again, with stubs.")
@click.argument("recording", type=FILE)
@click.option("--until", type=click.IntRange(min=0), metavar="N", help="Replay the first N steps (experiments) only.")
@click.option("--then", "planner", metavar="PLANNER", help="Branch off there with this planner: ranked.")
@click.option("--plan", type=FILE, metavar="FILE", help="With --then: this plan in place of the recorded one.")
@click.option("--steps", type=click.IntRange(min=1), help="With --then: end the branch after this many steps.")
@click.option("--into", type=FILE, metavar="DIR", help="With --then: keep the branch in a new folder.")
@as_json
@click.pass_obj
def replay(
    root: Path,
    recording: Path,
    until: int | None,
    planner: str | None,
    plan: Path | None,
    steps: int | None,
    into: Path | None,
    as_json: bool,
) -> int:
    """Run the state machine again on a recorded session, with stub tools.

    Exit status 1 at the first call that differs from the recording, which is shown field by field. Recordings of earlier
    formats are read as today's.

    With --until and --then the session branches off after N steps, counted as `continue --steps` counts them. A
    simulated deployment answers from there on, in a folder of its own, and the result is held against what the
    recording did. The branch measures the baseline first and has one step more for it.

    Example: optagent replay session.jsonl --until 3 --then ranked --plan other.md
    """
    if planner is not None:
        if until is None:
            raise click.UsageError("--then needs --until N: the number of steps to replay before")
        from optagent.agent.commands.branching import branch_off

        return branch_off(
            root, recording, until=until, planner=planner, plan=plan, steps=steps, into=into, as_json=as_json
        )
    if plan is not None or steps is not None or into is not None:
        raise click.UsageError("--plan, --steps and --into say something about a branch: give --until N --then PLANNER")
    from optagent.agent.commands.replaying import replay_recording

    return replay_recording(recording, until=until, as_json=as_json)


@cli.command(short_help="Say what state the campaign is in.")
@click.option("--repair", is_flag=True, help="Say what can be repaired, and do it when that is confirmed.")
@click.option("--yes", is_flag=True, help="With --repair: do it without asking.")
@as_json
@click.pass_obj
def doctor(root: Path, repair: bool, yes: bool, as_json: bool) -> int:
    """Say what state the campaign is in, with a remedy for every problem.

    Without --repair nothing on disk changes. With it, what is damaged is kept under another name. Exit status: 0 nothing is
    wrong, 1 something is, 2 repairs were not confirmed, 4 another process holds the campaign.

    Example: optagent doctor --repair
    """
    from optagent.agent.commands.doctor import doctor as examine

    return examine(root, repair=repair, yes=yes, as_json=as_json)


@cli.command(short_help="Make a campaign folder to start from.")
@click.argument("directory", metavar="DIR")
@click.option("--name", help="Name of the campaign (default: the folder's).")
@click.pass_obj
def init(root: Path, directory: str, name: str | None) -> int:
    """Make a campaign folder with a commented optagent.toml and an example plan.

    DIR is a new folder, or one without a campaign; with -C it lies in that one.

    Example: optagent init campaigns/kimi
    """
    from optagent.agent.commands.initialising import folder_named, make_campaign

    return make_campaign(folder_named(root, directory), name)


def main() -> None:
    """Run the command; errors that a person can act on become one line and an exit status."""
    from optagent.agent.errors import OptagentError
    from optagent.tools.errors import MachineExhausted, ReplayDiverged, ToolFailure

    try:
        sys.exit(cli.main(prog_name="optagent", standalone_mode=False))
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except OptagentError as error:
        _stop(str(error), error.exit_status)
    except ReplayDiverged as error:
        _stop(str(error), 1)
    except MachineExhausted as error:
        _stop(str(error), 1)
    except ToolFailure as error:
        _stop(str(error), 2)
    except OSError as error:
        _stop_if_exhausted(error)
    except (KeyboardInterrupt, click.Abort):
        _stop("interrupted; `optagent continue` goes on from here", 130)


def _stop_if_exhausted(error: OSError) -> None:
    """One line for a full disk and the like; any other error of this kind is a mistake of ours, and is shown whole."""
    from optagent.tools.errors import MachineExhausted
    from optagent.tools.exhausted import stop_if_exhausted

    try:
        stop_if_exhausted(error)
    except MachineExhausted as exhausted:
        _stop(str(exhausted), 1)
    raise error


def _stop(message: str, status: int) -> None:
    print(f"optagent: {message}", file=sys.stderr)
    sys.exit(status)

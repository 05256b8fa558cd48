"""The command line: parse, call one function of the library, print.

Every command imports what it needs when it runs, so that those that only read start at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="optagent",
    help="Carries an SGLang optimisation campaign from handoff to handoff: measures before it believes, "
    "asks only what it cannot find out.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_root = Path()

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for scripts instead of a screen.")]


@app.callback()
def _global(
    directory: Annotated[Path, typer.Option("-C", metavar="DIR", help="The campaign folder.")] = Path(),
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    global _root
    _root = directory
    if version:
        from optagent import __version__

        print(f"optagent {__version__}")
        raise typer.Exit


@app.command("continue")
def continue_(
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Stop in order after this many steps.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Decide, say why, and do nothing.")] = False,
    json: Json = False,
    record: Annotated[
        Path | None, typer.Option("--record", help="Write every tool call of this sitting to a new file.")
    ] = None,
    stub: Annotated[
        Path | None, typer.Option("--stub", help="With --dry-run: decide against scripted tool results.")
    ] = None,
) -> None:
    """Go on with the campaign if there are next steps, or stop and ask.

    Exit status: 0 ended in order, 3 waits for an answer, 1 failed, 2 bad input, 4 another process holds the campaign.

    Example: optagent -C campaigns/kimi continue --steps 3
    """
    from optagent.agent.commands.going_on import go_on

    raise typer.Exit(go_on(_root, steps=steps, dry_run=dry_run, as_json=json, record=record, stub=stub))


@app.command()
def answer(
    question: Annotated[str, typer.Argument(metavar="ID", help="The question, for example Q1.")],
    text: Annotated[str, typer.Argument(metavar="OPTION|TEXT", help="One of its options, or an answer in words.")],
    json: Json = False,
) -> None:
    """Answer an open question. `optagent continue` then acts on it.

    Example: optagent answer Q1 approve
    """
    from optagent.agent.commands.answering import give_answer

    raise typer.Exit(give_answer(_root, question, text, as_json=json))


@app.command()
def status(json: Json = False) -> None:
    """Where the campaign stands, in one screen: objective, baseline, best, plan, questions, budget, last steps."""
    from optagent.agent.commands.status import show_status

    raise typer.Exit(show_status(_root, as_json=json))


@app.command()
def plan(
    check: Annotated[
        bool,
        typer.Option("--check", help="Only report what is wrong, with line numbers; exit status 2 if anything is."),
    ] = False,
    file: Annotated[Path | None, typer.Argument(help="A plan file; without it, the campaign's own.")] = None,
    json: Json = False,
) -> None:
    """Show the ranked plan as it is understood, or check it.

    Example: optagent plan --check plans/eagle-fast-verify.md
    """
    from optagent.agent.commands.planning import show_plan

    raise typer.Exit(show_plan(_root, file, check=check, as_json=json))


@app.command()
def handoff(
    write: Annotated[
        bool, typer.Option("--write", help="Write a handoff now, whatever state the campaign is in.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Hold every claim of the latest handoff against the world.")
    ] = False,
    json: Json = False,
) -> None:
    """Show the latest handoff, write a new one, or check it.

    Exit status of --check: 0 when nothing is found broken, 1 when a claim does not hold.
    """
    from optagent.agent.commands.handing_off import handle_handoff

    raise typer.Exit(handle_handoff(_root, write=write, check=check, as_json=json))


@app.command()
def replay(
    recording: Annotated[Path, typer.Argument(help="A file that `optagent continue --record` wrote.")],
    json: Json = False,
) -> None:
    """Run the state machine again on a recorded session, with stub tools. Exit status 1 at the first divergence."""
    from optagent.agent.commands.replaying import replay_recording

    raise typer.Exit(replay_recording(recording, as_json=json))


@app.command()
def init(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder to make; it may exist without a campaign in it.")
    ],
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the campaign; the folder's name by default.")
    ] = None,
) -> None:
    """Make a campaign folder with a commented optagent.toml and an example plan.

    Example: optagent init campaigns/kimi
    """
    from optagent.agent.commands.initialising import make_campaign

    raise typer.Exit(make_campaign(directory, name))


def main() -> None:
    """Run the command; errors that a person can act on become one line and an exit status."""
    from optagent.agent.errors import Diverged, OptagentError
    from optagent.tools.errors import ReplayDiverged, ToolFailure

    try:
        app()
    except (Diverged, ReplayDiverged) as error:
        _stop(str(error), 1)
    except OptagentError as error:
        _stop(str(error), error.exit_status)
    except ToolFailure as error:
        _stop(str(error), 2)
    except KeyboardInterrupt:
        _stop("interrupted; `optagent continue` goes on from here", 130)


def _stop(message: str, status: int) -> None:
    print(f"optagent: {message}", file=sys.stderr)
    sys.exit(status)

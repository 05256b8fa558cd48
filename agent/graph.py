"""The state machine: the nodes wired up on LangGraph, with SQLite checkpoints behind it.

`langgraph` is imported by this module alone, which the commands import only when they run the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt

from optagent.agent import nodes
from optagent.agent.nodes import Round, State
from optagent.tools.checkpoints import UNREADABLE, made_anew, open_checkpoints
from optagent.tools.exhausted import stop_if_exhausted

RECURSION_LIMIT = 1_000_000
"""Super-steps of one sitting. What bounds a sitting are its own budgets, not this."""

NODES: dict[str, Callable[[State, Round], State]] = {
    "orient": nodes.orient_node,
    "reconcile": nodes.reconcile_node,
    "decide": nodes.decide_node,
    "prepare": nodes.prepare_node,
    "launch": nodes.launch_node,
    "gate": nodes.gate_node,
    "measure": nodes.measure_node,
    "judge": nodes.judge_node,
    "diagnose": nodes.diagnose_node,
    "settle": nodes.settle_node,
    "hand_off": nodes.hand_off_node,
}
FOLLOWING: dict[str, tuple[str, ...]] = {
    "orient": ("reconcile",),
    "reconcile": ("decide",),
    "decide": ("prepare", "hand_off"),
    "prepare": ("launch", "judge", "diagnose", "settle"),
    "launch": ("gate", "measure", "diagnose"),
    "gate": ("measure", "judge", "diagnose"),
    "measure": ("judge", "diagnose"),
    "judge": ("launch", "settle"),
    "diagnose": ("launch", "judge", "settle"),
    "settle": ("orient",),
    "hand_off": ("ask", "end"),
}


def build(checkpointer: BaseCheckpointSaver[Any] | None = None) -> Any:
    """The compiled state machine."""
    graph = StateGraph(State, context_schema=Round)
    for name, work in NODES.items():
        graph.add_node(name, _node(name, work))
        graph.add_conditional_edges(name, _following, {n: END if n == "end" else n for n in FOLLOWING[name]})
    graph.add_node("ask", _ask)
    graph.add_edge("ask", "orient")
    graph.add_edge(START, "orient")
    return graph.compile(checkpointer=checkpointer)


def _node(name: str, work: Callable[[State, Round], State]) -> Any:
    """Between two nodes a sitting can be ended; where it ends by itself, it is not interrupted any more."""

    def node(state: State, runtime: Runtime[Round]) -> State:
        session = runtime.context.session
        session.node = name
        with session.stop.put_off() if name == "hand_off" else nullcontext():
            session.stop.heed()
            return work(state, runtime.context)

    return node


def _following(state: State) -> str:
    return state["following"]


def _ask(state: State) -> State:
    """Stop here until somebody has answered. The node does nothing else, since it runs again from its first line."""
    interrupt("waiting for an answer")
    return {"following": "orient", "steps": 0, "ended": ""}


def run(round_: Round, checkpoints: Path | None, thread: str, earlier: str | None) -> State:
    """Run one sitting to its end and return the last state.

    `thread` is the sitting's id. When the checkpoint of an `earlier` sitting stands at a question, that one is gone on
    with; everything else starts at `orient`, which reconciles whatever was interrupted.
    """
    if checkpoints is None:
        return _invoke(build(_in_memory()), round_, thread, None)
    connection = open_checkpoints(checkpoints)
    try:
        asks = _stands_at_a_question(connection, earlier)
    except UNREADABLE as error:
        stop_if_exhausted(error, checkpoints)
        connection.close()
        connection, asks = made_anew(checkpoints), False
    with closing(connection):
        saver = SqliteSaver(connection)
        graph = build(saver)
        waiting = earlier if asks else None
        state = _invoke(graph, round_, waiting or thread, waiting)
        if earlier and not waiting:
            saver.delete_thread(earlier)
        return state


def _stands_at_a_question(connection: Any, earlier: str | None) -> bool:
    """Raises one of UNREADABLE where the checkpoints make no sense, which the journal does not need."""
    state = build(SqliteSaver(connection)).get_state(_config(earlier or "none"))
    return bool(earlier) and state.next == ("ask",)


def _in_memory() -> BaseCheckpointSaver[Any]:
    from langgraph.checkpoint.memory import InMemorySaver

    return InMemorySaver()


def _config(thread: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread}, "recursion_limit": RECURSION_LIMIT}


def _invoke(graph: Any, round_: Round, thread: str, waiting: str | None) -> State:
    begin: Any = Command(resume=True) if waiting else {"steps": 0, "ended": ""}
    state: State = graph.invoke(begin, _config(thread), context=round_, durability="sync")
    return state

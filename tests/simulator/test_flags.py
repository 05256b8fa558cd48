"""The command line in both release lines."""

from __future__ import annotations

import pytest

from optagent.tools.simulator.flags import parse, parser, release

OLD, NEW = "0.5.8", "0.5.23"


@pytest.mark.parametrize(
    ("version", "words", "field", "value"),
    [
        (OLD, ["--tp", "8"], "tp_size", 8),
        (OLD, ["--tp-size=4"], "tp_size", 4),
        (OLD, ["--cuda-graph-max-bs", "128"], "cuda_graph_max_bs", 128),
        (NEW, ["--cuda-graph-max-bs-decode", "32"], "cuda_graph_max_bs", 32),
        (NEW, ["--cuda-graph-backend-decode", "disabled"], "disable_cuda_graph", True),
        (NEW, ["--flashinfer-allreduce-fusion-backend", "auto"], "enable_flashinfer_allreduce_fusion", True),
        (NEW, ["--enable-flashinfer-allreduce-fusion"], "enable_flashinfer_allreduce_fusion", True),
        (OLD, ["--speculative-algo", "EAGLE3"], "speculative_algorithm", "EAGLE3"),
        (OLD, ["--trust-remote-code"], "trust_remote_code", True),
        (OLD, ["--ep", "8"], "ep_size", 8),
    ],
)
def test_accepted(version: str, words: list[str], field: str, value: object) -> None:
    assert parse(["--model-path", "m", *words], version)[field] == value


@pytest.mark.parametrize(
    ("version", "words", "message"),
    [
        (OLD, ["--no-such-flag", "1"], "unrecognized arguments: --no-such-flag 1"),
        (OLD, ["--cuda-graph-max-bs-decode", "8"], "unrecognized arguments"),
        (NEW, ["--cuda-graph-max-bs", "8"], "ambiguous option: --cuda-graph-max-bs could match"),
        (OLD, ["--attention-backend", "fa9"], "invalid choice"),
        (OLD, ["--port", "x"], "invalid int value"),
    ],
)
def test_refused_as_argparse_refuses(
    version: str, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--model-path", "m", *words], version)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("usage: launch_server.py")
    assert message in said


def test_model_path_is_required() -> None:
    with pytest.raises(SystemExit):
        parse([], OLD)


def test_help_lists_the_release_s_flags() -> None:
    assert "--cuda-graph-max-bs CUDA" in parser(OLD).format_help()
    assert "--cuda-graph-max-bs-decode" in parser(NEW).format_help()
    assert "--cuda-graph-max-bs " not in parser(NEW).format_help()


@pytest.mark.parametrize(("text", "numbers"), [("0.5.23", (0, 5, 23)), ("0.5.9.post1", (0, 5, 9)), ("main", ())])
def test_release(text: str, numbers: tuple[int, ...]) -> None:
    assert release(text) == numbers

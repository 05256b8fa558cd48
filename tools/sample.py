"""Greedy answers of a server, to see whether it still says what it should."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from optagent.tools.calls.bench import Answer, Sample, Sampled
from optagent.tools.network import client

if TYPE_CHECKING:
    import httpx

NO_SUCH_PATH = (404, 405)


def sample(request: Sample, timeout_s: float, simulated: bool) -> Sampled:
    """The server's answers in the order of the prompts; an answer that failed carries its error."""
    with client(request.url, timeout_s) as http, ThreadPoolExecutor(max(1, request.concurrency)) as pool:
        answers = list(pool.map(lambda prompt: _answer(http, prompt, request.max_tokens), request.prompts))
        accept_length = _accept_length(http)
    failed = [answer.error for answer in answers if answer.error is not None]
    problem = f"no prompt was answered: {failed[0]}" if failed and len(failed) == len(answers) else None
    return Sampled(answers=answers, accept_length=accept_length, problem=problem, simulated=simulated)


def _answer(http: httpx.Client, prompt: str, max_tokens: int) -> Answer:
    import httpx

    body = {"text": prompt, "sampling_params": {"temperature": 0, "max_new_tokens": max_tokens}}
    try:
        response = http.post("/generate", json=body)
        if response.status_code in NO_SUCH_PATH:
            return _completion(http, prompt, max_tokens)
        return _from_generate(response.json()) if response.status_code == 200 else _refused(response)
    except (httpx.HTTPError, ValueError) as error:
        return Answer(error=f"{type(error).__name__}: {error}"[:300])


def _completion(http: httpx.Client, prompt: str, max_tokens: int) -> Answer:
    """The same from an OpenAI-style server."""
    model = _first_model(http)
    body = {"model": model, "prompt": prompt, "temperature": 0, "max_tokens": max_tokens}
    response = http.post("/v1/completions", json=body)
    if response.status_code != 200:
        return _refused(response)
    reply = _object(response.json())
    choice = _object(next(iter(reply.get("choices") or []), None))
    return Answer(
        text=str(choice.get("text", "")),
        tokens=_count(_object(reply.get("usage")).get("completion_tokens")),
        finish_reason=str(choice.get("finish_reason") or ""),
    )


def _from_generate(reply: object) -> Answer:
    body = _object(reply)
    if "text" not in body:
        return Answer(error=f"the server answered without a text: {str(reply)[:200]}")
    meta = _object(body.get("meta_info"))
    reason = meta.get("finish_reason")
    return Answer(
        text=str(body["text"]),
        tokens=_count(meta.get("completion_tokens")),
        finish_reason=str(_object(reason).get("type", "") if isinstance(reason, dict) else reason or ""),
    )


def _accept_length(http: httpx.Client) -> float | None:
    """The server's own mean accept length since it started, None without speculation."""
    import httpx

    for path in ("/server_info", "/get_server_info"):
        try:
            response = http.get(path)
            if response.status_code != 200:
                continue
            states = _object(response.json()).get("internal_states") or []
        except (httpx.HTTPError, ValueError):
            return None
        value = _object(states[0] if isinstance(states, list) and states else None).get("avg_spec_accept_length")
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    return None


def _first_model(http: httpx.Client) -> str:
    models = _object(http.get("/v1/models").json()).get("data") or []
    return str(_object(models[0] if isinstance(models, list) and models else None).get("id", "default"))


def _refused(response: httpx.Response) -> Answer:
    return Answer(error=f"HTTP {response.status_code}: {response.text[:200]}")


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None

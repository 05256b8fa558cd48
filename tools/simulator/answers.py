"""Requests and answers in the shapes of SGLang's and OpenAI's endpoints. Every answer says that it is simulated."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from optagent.tools.simulator.serving import BadRequest, Generated, Prompt, Service
from optagent.tools.simulator.speaking import Scored

Body = Mapping[str, Any]


def native_prompts(body: Body) -> list[Prompt]:
    """The prompts of a `/generate` body: `text` or `input_ids`, one or a list."""
    text, ids = body.get("text"), body.get("input_ids")
    if text is not None:
        return [Prompt(str(one)) for one in (text if isinstance(text, list) else [text])]
    if isinstance(ids, list) and ids:
        rows = ids if isinstance(ids[0], list) else [ids]
        return [Prompt("", tuple(int(one) for one in row)) for row in rows]
    raise BadRequest("Either text, input_ids or input_embeds should be provided.")


def is_batch(body: Body) -> bool:
    text, ids = body.get("text"), body.get("input_ids")
    return isinstance(text, list) or (isinstance(ids, list) and bool(ids) and isinstance(ids[0], list))


def scored_from(body: Body, count: int) -> list[int | None]:
    """For each of `count` prompts of a `/generate` body, from which token on log-probabilities are wanted."""
    wanted, start = body.get("return_logprob", False), body.get("logprob_start_len")
    asked = wanted if isinstance(wanted, list) else [wanted] * count
    starts = start if isinstance(start, list) else [start] * count
    if len(asked) != count or len(starts) != count:
        raise BadRequest("return_logprob and logprob_start_len need one value for each prompt")
    return [
        (-1 if first is None else int(first)) if is_asked else None
        for is_asked, first in zip(asked, starts, strict=True)
    ]


def completion_prompts(body: Body) -> list[Prompt]:
    """The prompts of a `/v1/completions` body: text, token ids, or a list of either."""
    prompt = body.get("prompt", "")
    if isinstance(prompt, str):
        return [Prompt(prompt)]
    if prompt and isinstance(prompt[0], int):
        return [Prompt("", tuple(prompt))]
    return [Prompt(one) if isinstance(one, str) else Prompt("", tuple(one)) for one in prompt]


def chat_prompt(body: Body) -> Prompt:
    """The conversation as the text a chat template would make of it."""
    return Prompt("".join(f"<|{one.get('role')}|>{content(one.get('content'))}" for one in body.get("messages", [])))


def content(value: Any) -> str:
    if isinstance(value, list):
        return "".join(str(part.get("text", "")) for part in value if isinstance(part, Mapping))
    return "" if value is None else str(value)


def sampling_of(body: Body) -> dict[str, Any]:
    """OpenAI's sampling fields in SGLang's words."""
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or 128
    sampling = {"max_new_tokens": limit, "ignore_eos": bool(body.get("ignore_eos", False))}
    return sampling | ({"temperature": body["temperature"]} if body.get("temperature") is not None else {})


def identity(answer: Generated) -> str:
    return hashlib.sha256(f"{answer.prompt.key}{answer.job.index}".encode()).hexdigest()[:32]


def finish_reason(answer: Generated) -> dict[str, Any]:
    if answer.stopped:
        return {"type": "stop", "matched": 163586}
    return {"type": "length", "length": len(answer.words)}


def log_probabilities(answer: Generated, count: int) -> dict[str, Any]:
    """The part of `meta_info` that there is when log-probabilities were asked for, up to `count` tokens of the answer."""
    if answer.said.scores is None:
        return {}

    def listed(tokens: Sequence[Scored]) -> list[list[float | int | None]]:
        return [[value, token, None] for value, token in tokens]

    said = answer.said.scores.answer[:count]
    return {
        "input_token_logprobs": listed(answer.said.scores.prompt),
        "output_token_logprobs": listed(said),
        "output_token_logprobs_length": len(said),
    }


def meta_info(answer: Generated, count: int | None = None) -> dict[str, Any]:
    """SGLang's `meta_info` when `count` tokens of the answer are out, by default all of them.

    The fields under "virtual" are the simulator's own, in virtual seconds of the load.
    """
    job = answer.job
    out = len(answer.words) if count is None else count
    meta: dict[str, Any] = {
        "id": identity(answer),
        "finish_reason": finish_reason(answer) if out == len(answer.words) else None,
        "prompt_tokens": job.prompt_tokens,
        **log_probabilities(answer, out),
        "completion_tokens": out,
        "cached_tokens": job.cached_tokens,
        "weight_version": "default",
        "e2e_latency": job.finished_s - job.arrived_s,
        "simulated": True,
        "virtual": {
            "arrived_s": job.arrived_s,
            "first_token_s": job.first_token_s,
            "finished_s": job.finished_s,
            "itl_runs": job.itl_runs,
        },
    }
    if job.verify_steps:
        meta["spec_verify_ct"] = job.verify_steps
        meta["spec_accept_length"] = job.produced / job.verify_steps
    return meta


def native_answer(answer: Generated) -> dict[str, Any]:
    return {"text": answer.text, "output_ids": answer.said.token_ids, "meta_info": meta_info(answer)}


def native_chunks(answer: Generated) -> Iterator[dict[str, Any]]:
    """The stream of a `/generate`: the text so far in every chunk."""
    for count in chunk_ends(answer):
        words, ids = answer.words[:count], answer.said.token_ids[:count]
        yield {"text": " ".join(words), "output_ids": ids[-1:], "meta_info": meta_info(answer, count)}


def chunk_ends(answer: Generated) -> list[int]:
    """How many tokens are out after each chunk: one a step without speculation."""
    total, steps = len(answer.words), answer.job.verify_steps or len(answer.words)
    return sorted({max(1, round(total * (at + 1) / steps)) for at in range(steps)} | {total})


def usage(answers: list[Generated]) -> dict[str, Any]:
    prompt = sum(one.job.prompt_tokens for one in answers)
    completion = sum(len(one.words) for one in answers)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def openai_reason(answer: Generated) -> str:
    return "stop" if answer.stopped else "length"


def completion_answer(model: str, answers: list[Generated]) -> dict[str, Any]:
    return {
        "id": identity(answers[0]),
        "object": "text_completion",
        "created": 0,
        "model": model,
        "choices": [
            {"index": at, "text": one.text, "logprobs": None, "finish_reason": openai_reason(one)}
            for at, one in enumerate(answers)
        ],
        "usage": usage(answers),
        "meta_info": meta_info(answers[0]),
        "simulated": True,
    }


def chat_answer(model: str, answer: Generated) -> dict[str, Any]:
    message = {"role": "assistant", "content": answer.text, "reasoning_content": None, "tool_calls": None}
    return {
        "id": identity(answer),
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": openai_reason(answer)}],
        "usage": usage([answer]),
        "meta_info": meta_info(answer),
        "simulated": True,
    }


def openai_chunks(model: str, answer: Generated, chat: bool, with_usage: bool) -> Iterator[dict[str, Any]]:
    """The stream of a completion or chat completion: new text only in every chunk."""
    head = {
        "id": identity(answer),
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": 0,
        "model": model,
        "simulated": True,
    }
    before = 0
    for count in chunk_ends(answer):
        text = ("" if before == 0 else " ") + " ".join(answer.words[before:count])
        choice: dict[str, Any] = {"index": 0, "delta": {"content": text}} if chat else {"index": 0, "text": text}
        choice["finish_reason"] = openai_reason(answer) if count == len(answer.words) else None
        yield head | {"choices": [choice]}
        before = count
    if with_usage:
        yield head | {"choices": [], "usage": usage([answer])}


def server_info(service: Service) -> dict[str, Any]:
    """SGLang's `/server_info`: its arguments, what the scheduler knows, and that it is simulated."""
    state: dict[str, Any] = {
        "last_gen_throughput": service.totals.last_throughput,
        "memory_usage": {
            "weight": round(service.memory.weights_gb, 2),
            "kvcache": round(service.memory.kv_gb, 2),
            "token_capacity": service.memory.kv_tokens,
            "graph": round(service.memory.graph_gb, 2),
        },
        "effective_max_running_requests_per_dp": service.setup.max_running_requests,
    }
    if service.accept_length is not None:
        state["avg_spec_accept_length"] = service.accept_length
    return dict(service.fields) | {
        "status": "ready",
        "version": service.around.versions["sglang"],
        "max_total_num_tokens": service.memory.kv_tokens,
        "internal_states": [state],
        "simulated": True,
        "scenario": service.around.scenario.name,
        "setup": asdict(service.setup),
    }


def model_info(service: Service) -> dict[str, Any]:
    return {
        "model_path": service.fields["model_path"],
        "tokenizer_path": service.fields["tokenizer_path"] or service.fields["model_path"],
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "simulated": True,
    }


def models(service: Service) -> dict[str, Any]:
    name = service.fields["served_model_name"] or service.fields["model_path"]
    card = {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "sglang",
        "root": name,
        "max_model_len": service.setup.context_len,
    }
    return {"object": "list", "data": [card], "simulated": True}


def prometheus(service: Service) -> str:
    """The totals in Prometheus' text format, under SGLang's names."""
    totals, name = service.totals, service.fields["model_path"]
    values: list[tuple[str, str, float]] = [
        ("sglang:prompt_tokens_total", "counter", totals.prompt_tokens),
        ("sglang:generation_tokens_total", "counter", totals.generated_tokens),
        ("sglang:cached_tokens_total", "counter", totals.cached_tokens),
        ("sglang:num_requests_total", "counter", totals.requests),
        ("sglang:num_running_reqs", "gauge", 0),
        ("sglang:num_queue_reqs", "gauge", 0),
        ("sglang:token_usage", "gauge", 0.0),
        ("sglang:gen_throughput", "gauge", totals.last_throughput),
        ("sglang:max_total_num_tokens", "gauge", service.memory.kv_tokens),
    ]
    if service.accept_length is not None:
        values.append(("sglang:spec_accept_length", "gauge", service.accept_length))
    label = f'{{model_name="{name}",simulated="true"}}'
    return "".join(
        f"# HELP {key} Simulated.\n# TYPE {key} {kind}\n{key}{label} {float(value)}\n" for key, kind, value in values
    )

"""Answers of models in the words of four APIs, whole and as the events of a stream.

An answer is a text, or it asks the agent to use one of its tools. Each answer states the same tokens.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

INPUT, CACHED, OUTPUT = 900, 300, 30


@dataclass(frozen=True)
class Call:
    """A tool that the model wants to be used: with arguments, or with a free text, as only Codex has it."""

    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    source: str | None = None


def anthropic(model: str, text: str, call: Call | None = None) -> dict[str, Any]:
    usage = {"input_tokens": INPUT - CACHED, "cache_read_input_tokens": CACHED, "output_tokens": OUTPUT}
    content: list[dict[str, Any]] = [{"type": "text", "text": text}]
    if call is not None:
        content.append({"type": "tool_use", "id": "toolu_1", "name": call.tool, "input": call.arguments})
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": content,
            "stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None,
            "usage": usage}  # fmt: skip


def anthropic_events(model: str, text: str, call: Call | None = None) -> Iterator[dict[str, Any]]:
    whole = anthropic(model, text, call)
    usage = {**whole["usage"], "output_tokens": 1}
    yield {
        "type": "message_start",
        "message": {**whole, "content": [], "stop_reason": None, "usage": usage},
    }
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for word in text.split(" "):
        delta = {"type": "text_delta", "text": f"{word} "}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    if call is not None:
        block = {**whole["content"][1], "input": {}}
        part = {"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}
        yield {"type": "content_block_start", "index": 1, "content_block": block}
        yield {"type": "content_block_delta", "index": 1, "delta": part}
        yield {"type": "content_block_stop", "index": 1}
    delta = {"stop_reason": whole["stop_reason"]}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": OUTPUT}}
    yield {"type": "message_stop"}


def completion(model: str, text: str, call: Call | None = None) -> dict[str, Any]:
    usage = {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT,
             "prompt_tokens_details": {"cached_tokens": CACHED}}  # fmt: skip
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if call is not None:
        function = {"name": call.tool, "arguments": json.dumps(call.arguments)}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
    choice = {"index": 0, "finish_reason": "tool_calls" if call else "stop", "message": message}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model,
            "choices": [choice], "usage": usage}  # fmt: skip


def completion_events(model: str, text: str, call: Call | None = None) -> Iterator[dict[str, Any]]:
    whole = completion(model, text, call)
    (choice,) = whole["choices"]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": f"{word} "} for word in text.split(" ")]
    if call is not None:
        deltas.append({"tool_calls": [{"index": 0, **choice["message"]["tool_calls"][0]}]})
    for delta in deltas:
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    yield {**head, "choices": [], "usage": whole["usage"]}


def response(model: str, text: str, call: Call | None = None) -> dict[str, Any]:
    usage = {"input_tokens": INPUT, "input_tokens_details": {"cached_tokens": CACHED},
             "output_tokens": OUTPUT, "output_tokens_details": {"reasoning_tokens": 0},
             "total_tokens": INPUT + OUTPUT}  # fmt: skip
    part = {"type": "output_text", "text": text, "annotations": []}
    items: list[dict[str, Any]] = [
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    ]
    if call is not None and call.source is not None:
        items.append({"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": call.tool,
                      "input": call.source, "status": "completed"})  # fmt: skip
    elif call is not None:
        items.append({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": call.tool,
                      "arguments": json.dumps(call.arguments), "status": "completed"})  # fmt: skip
    return {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": model,
            "output": items, "usage": usage}  # fmt: skip


def response_events(model: str, text: str, call: Call | None = None) -> Iterator[dict[str, Any]]:
    whole = response(model, text, call)
    message, *calls = whole["output"]
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.output_item.added", "output_index": 0, "item": {**message, "content": []}}
    for word in text.split(" "):
        yield {
            "type": "response.output_text.delta",
            "item_id": "msg_1",
            "output_index": 0,
            "delta": f"{word} ",
        }
    yield {"type": "response.output_item.done", "output_index": 0, "item": message}
    for item in calls:
        yield {"type": "response.output_item.added", "output_index": 1,
               "item": {**item, "status": "in_progress"}}  # fmt: skip
        yield {"type": "response.output_item.done", "output_index": 1, "item": item}
    yield {"type": "response.completed", "response": whole}


def generated(model: str, text: str, call: Call | None = None) -> dict[str, Any]:
    usage = {"promptTokenCount": INPUT, "candidatesTokenCount": OUTPUT, "cachedContentTokenCount": CACHED,
             "totalTokenCount": INPUT + OUTPUT}  # fmt: skip
    parts: list[dict[str, Any]] = [{"text": text}]
    if call is not None:
        parts.append({"functionCall": {"name": call.tool, "args": call.arguments}})
    content = {"role": "model", "parts": parts}
    return {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
            "usageMetadata": usage, "modelVersion": model}  # fmt: skip


def generated_events(model: str, text: str, call: Call | None = None) -> Iterator[dict[str, Any]]:
    for word in text.split(" "):
        content = {"role": "model", "parts": [{"text": f"{word} "}]}
        yield {"candidates": [{"content": content, "index": 0}], "modelVersion": model,
               "usageMetadata": {"promptTokenCount": INPUT}}  # fmt: skip
    yield generated(model, "", call)


APIS = {
    "/v1/messages": (anthropic, anthropic_events),
    "/v1/chat/completions": (completion, completion_events),
    "/v1/responses": (response, response_events),
}

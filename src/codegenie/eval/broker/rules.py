"""Which request of an agent passes, and as what. Pure: a head and a body in, a passage or a refusal out.

Everything is an allow-list: methods, paths, parameters, headers, models, tools. What passes is written anew,
so nothing of the agent's own framing, address or authentication reaches the upstream.
"""

import re
from dataclasses import dataclass

from codegenie.eval.broker.heads import RequestHead, ResponseHead
from codegenie.eval.broker.records import BrokerRules
from codegenie.eval.broker.request_body import (
    Unacceptable,
    check_tools,
    check_top_keys,
    names_other_models,
    read_object,
)

_MODEL_IN_A_PATH = r"([A-Za-z0-9][A-Za-z0-9._-]*)"
_PARAMETER = re.compile(r"(alt|beta|api-version)=[A-Za-z0-9._-]{1,64}")
# The agent's key, which is a placeholder. Gemini's clients write it into the address.
_KEY_PARAMETER = re.compile(r"key=[^&#]*")
_PASSED_ON = frozenset(
    (
        "accept",
        "user-agent",
        "anthropic-version",
        "anthropic-beta",
        "openai-beta",
        "x-app",
        "originator",
        "session_id",
        "session-id",
        "conversation_id",
        "version",
        "x-goog-api-client",
        "x-request-id",
        "x-client-request-id",
        "idempotency-key",
    )
)
_PASSED_ON_PREFIXES = ("x-stainless-", "x-codex-", "x-claude-")
_PASSED_BACK = frozenset(
    (
        "content-type",
        "date",
        "retry-after",
        "retry-after-ms",
        "request-id",
        "x-request-id",
        "x-should-retry",
        "openai-model",
        "openai-processing-ms",
        "openai-version",
    )
)
_PASSED_BACK_PREFIXES = ("anthropic-ratelimit-", "x-ratelimit-")
_MODEL_CHARACTERS = 200
_KEY_REFUSED = frozenset({401, 403})
NOT_AGAIN = ("x-should-retry", "false")
"""Clients of Anthropic and OpenAI do not repeat such a request. Without it, Claude Code tries for minutes."""


class Refused(Exception):  # noqa: N818 - an answer to an agent
    """A request does not pass. The text goes to the agent after `broker:`."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class Passage:
    """A head that passed: what the upstream will be asked, before a host and a key are added."""

    method: str
    target: str
    fields: tuple[tuple[str, str], ...]
    model: str | None


def judge_head(rules: BrokerRules, head: RequestHead) -> Passage:
    """Let a head pass, or raise Refused."""
    if head.method not in {"GET", "POST"}:
        raise Refused(405, "only GET and POST pass")
    if not head.target.startswith("/"):
        raise Refused(400, "the target of a request is a path, and not an address")
    path, mark, query = head.target.partition("?")
    found = next(filter(None, (_pattern(known).fullmatch(path) for known in rules.paths)), None)
    if found is None:
        raise Refused(403, "this path is not one of [broker] paths")
    if head.every("content-encoding"):
        raise Refused(415, "a body must not be compressed")
    kept = _parameters(query) if mark else []
    target = path + ("?" + "&".join(kept) if kept else "")
    fields = tuple(
        (name, value)
        for name, value in head.fields
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    )
    return Passage(head.method, target, fields, found[1] if found.groups() else None)


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.escape(path).replace(r"\*", _MODEL_IN_A_PATH))


def _parameters(query: str) -> list[str]:
    """Return the parameters that pass. Others could change the method or leave usage out of the answer."""
    parts = [part for part in query.split("&") if not _KEY_PARAMETER.fullmatch(part)]
    if not all(map(_PARAMETER.fullmatch, parts)):
        raise Refused(403, "of parameters only alt, beta and api-version pass")
    return parts


def judge_body(rules: BrokerRules, passage: Passage, raw: bytes) -> str | None:
    """Let a body pass, or raise Refused; return the model that is asked for."""
    if passage.method == "GET":
        if raw:
            raise Refused(400, "a GET has no body")
        return passage.model
    try:
        return _judge_object(rules, passage, raw)
    except Unacceptable as error:
        raise Refused(400 if error.is_malformed else 403, str(error)) from None


def _judge_object(rules: BrokerRules, passage: Passage, raw: bytes) -> str | None:
    body = read_object(raw)
    check_top_keys(body)
    stated = body.get("model")
    if stated is not None and not (isinstance(stated, str) and len(stated) <= _MODEL_CHARACTERS):
        raise Refused(400, "the model is not a short text")
    asked = [name.removeprefix("models/") for name in (passage.model, stated) if name is not None]
    if rules.models:
        _check_models(rules, asked)
        other = names_other_models(body)
        if other is not None:
            raise Refused(403, f"`{other}` can name other models than [broker] models")
    if not rules.server_tools:
        check_tools(body)
    return asked[0] if asked else None


def _check_models(rules: BrokerRules, asked: list[str]) -> None:
    for name in asked:
        if name not in rules.models:
            raise Refused(403, f"model {name[:80]!r} is not one of [broker] models")
    if not asked:
        raise Refused(403, "the request names no model, and [broker] models names some")


def passed_back(head: ResponseHead) -> list[tuple[str, str]]:
    """Return the headers of an answer that an agent may see: no cookie, no address, no framing.

    A refused key stays refused, whatever the provider says about it.
    """
    is_final = head.status in _KEY_REFUSED
    kept = [
        (name, value)
        for name, value in head.fields
        if name in _PASSED_BACK or name.startswith(_PASSED_BACK_PREFIXES)
    ]
    return [*(field for field in kept if field[0] != NOT_AGAIN[0]), NOT_AGAIN] if is_final else kept

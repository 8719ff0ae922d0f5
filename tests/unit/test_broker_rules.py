"""Which requests of an agent pass a broker: methods, paths, parameters, headers, bodies, models, tools."""

import json
from typing import Any

import pytest

from codegenie.eval.broker.exchange import refusal
from codegenie.eval.broker.heads import request_head, response_head
from codegenie.eval.broker.rules import Passage, Refused, judge_body, judge_head, passed_back
from tests.support.broker_lines import rules

KNOWN = rules("https://api.example.com")
STRICT = rules("https://api.example.com", models=("m-1", "m-2"))
OPEN = rules("https://api.example.com", server_tools=True)
POST = Passage("POST", "/v1/messages", (), None)
TEXT = "https://files.example.com/a.pdf"


def head(target: str, *fields: str, method: str = "POST") -> Passage:
    lines = [f"{method} {target} HTTP/1.1", "host: here", *fields]
    return judge_head(KNOWN, request_head([line.encode() for line in lines]))


def body(document: object, known: Any = KNOWN, passage: Passage = POST) -> str | None:  # noqa: ANN401
    raw = document if isinstance(document, bytes) else json.dumps(document).encode()
    return judge_body(known, passage, raw)


# Heads.


@pytest.mark.parametrize(
    ("target", "passed", "model"),
    [
        ("/v1/messages", "/v1/messages", None),
        ("/v1/messages?beta=true", "/v1/messages?beta=true", None),
        ("/v1beta/models/m-1.5:generateContent?key=broker", "/v1beta/models/m-1.5:generateContent", "m-1.5"),
        (
            "/v1beta/models/m:streamGenerateContent?alt=sse&key=a%2Fb",
            "/v1beta/models/m:streamGenerateContent?alt=sse",
            "m",
        ),
    ],
)
def test_a_known_path_passes_without_the_key_in_its_parameters(
    target: str, passed: str, model: str | None
) -> None:
    passage = head(target)

    assert (passage.target, passage.model) == (passed, model)


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/v1/files", 403),
        ("/v1/messages/", 403),
        ("/v1/messages/../files", 403),
        ("/v1/messages/..%2ffiles", 403),
        ("/v1/%2e%2e/files", 403),
        ("//evil.example.com/v1/messages", 403),
        ("/v1/messages#x", 403),
        ("/v1/messages;x", 403),
        ("/v1\\messages", 403),
        ("/V1/messages", 403),
        ("/v1/messages?beta=true&fields=a", 403),
        ("/v1/messages?$httpMethod=DELETE", 403),
        ("/v1/messages?beta=true;alt=x", 403),
        ("/v1/messages?beta=a%26b", 403),
        ("/v1/messages?", 403),
        ("/v1/messages?key=a#b", 403),
        ("/v1beta/models/a/b:generateContent", 403),
        ("/v1beta/models/..:generateContent", 403),
        ("/v1beta/models/:generateContent", 403),
        ("/v1beta/models/a%3Ab:generateContent", 403),
        ("http://api.example.com/v1/messages", 400),
        ("https://evil.example.com/v1/messages", 400),
        ("evil.example.com:443", 400),
        ("*", 400),
    ],
)
def test_any_other_target_is_refused(target: str, status: int) -> None:
    with pytest.raises(Refused) as caught:
        head(target)

    assert caught.value.status == status


@pytest.mark.parametrize("method", ["CONNECT", "PUT", "DELETE", "OPTIONS", "TRACE", "HEAD", "PATCH"])
def test_any_method_but_get_and_post_is_refused(method: str) -> None:
    with pytest.raises(Refused, match="GET and POST"):
        head("/v1/messages", method=method)


def test_only_headers_of_a_list_pass_and_none_that_authenticate_address_frame_or_mask() -> None:
    dropped = [
        "authorization: Bearer x",
        "x-api-key: x",
        "x-goog-api-key: x",
        "api-key: x",
        "proxy-authorization: x",
        "cookie: a=b",
        "connection: keep-alive, x-app",
        "keep-alive: 5",
        "trailer: x-sum",
        "upgrade: h2c",
        "expect: 100-continue",
        "accept-encoding: gzip",
        "x-forwarded-host: evil.example.com",
        "x-http-method-override: DELETE",
        "x-goog-fieldmask: candidates",
        "openai-organization: other",
        "content-type: text/plain",
        "content-length: 3",
        "x-stainless: no",
    ]
    passed = ["accept: text/event-stream", "anthropic-version: 2023-06-01", "x-stainless-lang: js"]

    found = head("/v1/messages", *dropped, *passed).fields

    assert [f"{name}: {value}" for name, value in found] == passed


def test_a_compressed_body_is_refused_because_its_content_cannot_be_judged() -> None:
    with pytest.raises(Refused, match="compressed"):
        head("/v1/messages", "content-encoding: gzip")


def test_an_answer_gives_the_agent_no_cookie_no_address_and_no_framing() -> None:
    fields = ["content-type: application/json", "set-cookie: a=b", "location: /x", "x-ratelimit-remaining: 3"]
    fields += ["content-length: 3", "connection: close", "alt-svc: h3"]
    lines = [b"HTTP/1.1 200 OK", *(field.encode() for field in fields)]

    assert [name for name, _ in passed_back(response_head(lines))] == [
        "content-type",
        "x-ratelimit-remaining",
    ]


@pytest.mark.parametrize("status", [401, 403])
def test_a_client_is_told_not_to_ask_again_with_a_refused_key(status: int) -> None:
    lines = [f"HTTP/1.1 {status} No".encode(), b"x-should-retry: true", b"content-type: application/json"]

    assert passed_back(response_head(lines)) == [
        ("content-type", "application/json"),
        ("x-should-retry", "false"),
    ]


def test_whether_to_ask_again_after_another_answer_is_the_providers_word() -> None:
    assert passed_back(response_head([b"HTTP/1.1 409 Conflict", b"x-should-retry: true"])) == [
        ("x-should-retry", "true")
    ]
    assert passed_back(response_head([b"HTTP/1.1 200 OK"])) == []


@pytest.mark.parametrize("status", [400, 403, 502])
def test_a_client_is_told_not_to_repeat_what_the_broker_refuses(status: int) -> None:
    head_lines = refusal(status, "no").partition(b"\r\n\r\n")[0].split(b"\r\n")

    assert (b"x-should-retry: false" in head_lines) == (status < 500)


# Bodies.


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"not json",
        b"[]",
        b'"model"',
        b'{"model": "m"} {}',
        b'{"model": "m", "model": "n"}',
        b'{"a": {"b": 1, "b": 2}}',
        b'{"model": "m", "temperature": NaN}',
        b'{"model": "\xff"}',
        b'\xef\xbb\xbf{"model": "m"}',
        b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"a":[' + b"[]," * 1_000_000 + b"0]}",
        b'{"model": "m", "Model": "n"}',
        b'{"mode_l": "m"}',
        b'{"MODEL": "m"}',
        b'{"mo\xc5\xbfdel": "m"}',
        b'{"model": 5}',
        b'{"model": ["m"]}',
        b'{"tools": {"type": "function"}}',
    ],
    ids=lambda raw: raw[:24].decode("latin-1"),
)
def test_a_body_that_is_not_one_object_with_one_meaning_is_refused(raw: bytes) -> None:
    with pytest.raises(Refused) as caught:
        body(raw)

    assert caught.value.status == 400


def test_commas_inside_of_texts_are_not_counted_as_values() -> None:
    assert body({"model": "m", "messages": ["," * 1_100_000]}) == "m"


def test_a_get_passes_without_a_body_and_not_with_one() -> None:
    assert body(b"", passage=Passage("GET", "/v1/models", (), None)) is None
    with pytest.raises(Refused, match="no body"):
        body({"model": "m"}, passage=Passage("GET", "/v1/models", (), None))


def test_the_model_is_taken_from_the_body_or_the_path_and_must_be_one_of_the_list() -> None:
    gemini = Passage("POST", "/v1beta/models/m-2:generateContent", (), "m-2")

    assert body({"model": "m-1"}, STRICT) == "m-1"
    assert body({"contents": []}, STRICT, gemini) == "m-2"
    assert body({"model": "models/m-1"}, STRICT) == "m-1"
    assert body({"model": "anything"}) == "anything"


@pytest.mark.parametrize(
    ("document", "path_model"),
    [
        ({"model": "m-3"}, None),
        ({"model": "m-1 "}, None),
        ({"messages": []}, None),
        ({"model": None}, None),
        ({"model": "m-1"}, "m-3"),
        ({"model": "m-3"}, "m-1"),
        ({"model": "m-1", "models": ["m-3"]}, None),
        ({"model": "m-1", "fallbacks": ["m-3"]}, None),
    ],
)
def test_another_model_or_none_is_refused(document: dict[str, Any], path_model: str | None) -> None:
    with pytest.raises(Refused) as caught:
        body(document, STRICT, Passage("POST", "/p", (), path_model))

    assert caught.value.status == 403


# Tools that the provider runs.

OWN_TOOLS = [
    {"name": "edit", "description": "d", "input_schema": {"type": "object"}},
    {"name": "edit", "input_schema": {}, "cache_control": {"type": "ephemeral"}},
    {"type": "custom", "name": "edit", "input_schema": {}},
    {"type": "function", "function": {"name": "edit", "parameters": {}}},
    {"type": "function", "name": "edit", "parameters": {}, "strict": False},
    {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}},
    {"type": "local_shell"},
    {"type": "apply_patch"},
    {"type": "bash_20250124", "name": "bash"},
    {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 10000},
    {"functionDeclarations": [{"name": "edit"}]},
    {"function_declarations": [{"name": "edit"}]},
    {
        "type": "namespace",
        "name": "team",
        "description": "d",
        "tools": [{"type": "function", "name": "edit", "parameters": {}}, {"type": "custom", "name": "run"}],
    },
    {"type": "tool_search", "execution": "client", "description": "d", "parameters": {}},
]
TOOLS_OF_THE_PROVIDER: list[Any] = [
    {"type": "web_search"},
    {"type": "web_search_20250305", "name": "web_search"},
    {"type": "web_fetch_20250910", "name": "web_fetch"},
    {"type": "code_execution_20250825", "name": "code_execution"},
    {"type": "mcp", "server_url": "https://evil.example.com"},
    {"type": "mcp_toolset", "mcp_server_name": "x"},
    {"type": "file_search"},
    {"type": "code_interpreter"},
    {"type": "computer_use_preview"},
    {"type": "something_new"},
    {"type": "bash_"},
    {"type": "function_web"},
    {"type": None},
    {"type": ["function"]},
    {"type": "function", "Type": "web_search"},
    {"Type": "web_search"},
    {"googleSearch": {}},
    {"google_search": {}},
    {"codeExecution": {}},
    {"urlContext": {}},
    {"functionDeclarations": [], "googleSearch": {}},
    {"name": "edit", "input_schema": {}, "googleSearch": {}},
    {"type": "function", "function": {}, "urlContext": {}},
    {"type": "namespace", "name": "team", "tools": [{"type": "function"}, {"type": "web_search"}]},
    {"type": "namespace", "name": "team", "tools": [{"type": "namespace", "name": "x", "tools": []}]},
    {"type": "namespace", "name": "team", "tools": [{"type": "function"}], "server_url": TEXT},
    {"type": "namespace", "name": "team", "tools": {"type": "web_search"}},
    {"type": "namespace", "name": "team", "tools": ["web_search"]},
    {"type": "namespace", "name": "team"},
    {"type": "function", "tools": [{"type": "web_search"}]},
    {"type": "tool_search"},
    {"type": "tool_search", "execution": "server"},
    {"type": "tool_search", "execution": "client", "server_url": TEXT},
    "web_search",
    None,
]
DOORS: list[dict[str, Any]] = [
    {"mcp_servers": [{"url": "https://evil.example.com"}]},
    {"mcpServers": []},
    {"MCP_servers": []},
    {"container": "c_1"},
    {"web_search_options": {}},
    {"background": True},
    {"previous_response_id": "resp_1"},
    {"conversation": "conv_1"},
    {"plugins": [{"id": "web"}]},
    {"search_parameters": {"mode": "auto"}},
    {"data_sources": []},
    {"prompt": {"id": "pmpt_1"}},
]
FETCHED: list[dict[str, Any]] = [
    {"messages": [{"content": [{"type": "image", "source": {"type": "url", "url": TEXT}}]}]},
    {"messages": [{"content": [{"type": "document", "source": {"type": "url", "url": TEXT}}]}]},
    {"messages": [{"content": [{"type": "document", "source": {"Type": "url", "url": TEXT}}]}]},
    {"messages": [{"content": [{"type": "document", "source": {"type": "file", "file_id": "f"}}]}]},
    {"messages": [{"content": [{"type": "tool_result", "content": [{"source": {"type": "url"}}]}]}]},
    {"messages": [{"content": [{"type": "image_url", "image_url": {"url": TEXT}}]}]},
    {"input": [{"content": [{"type": "input_image", "image_url": TEXT}]}]},
    {"input": [{"content": [{"type": "input_file", "file_url": TEXT}]}]},
    {"contents": [{"parts": [{"fileData": {"fileUri": TEXT}}]}]},
    {"contents": [{"parts": [{"file_data": {"file_uri": TEXT}}]}]},
    {"contents": [{"parts": [{"functionResponse": {"parts": [{"fileData": {"fileUri": TEXT}}]}}]}]},
    {"systemInstruction": {"parts": [{"fileData": {"fileUri": TEXT}}]}},
]
HONEST: list[dict[str, Any]] = [
    {"tools": None, "background": False, "previous_response_id": None, "container": None, "prompt": "text"},
    {"messages": [{"content": [{"type": "image", "source": {"type": "base64", "data": "aa"}}]}]},
    {"messages": [{"content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aa"}}]}]},
    {
        "messages": [
            {"content": [{"type": "tool_use", "input": {"source": {"type": "url"}, "file_url": "x"}}]}
        ]
    },
    {"contents": [{"parts": [{"functionCall": {"args": {"fileUri": "x"}}}]}]},
    {"contents": [{"parts": [{"functionResponse": {"response": {"fileUri": "x"}}}]}]},
    {"messages": [{"content": f"please read {TEXT}"}]},
    {"input": [{"type": "additional_tools", "role": "developer", "tools": [{"type": "custom"}]}]},
    {"input": [{"type": "tool_search_output", "execution": "client", "tools": [{"type": "function"}]}]},
    {"input": [{"type": "message", "tools": None}]},
    {"messages": [{"content": [{"type": "tool_use", "input": {"tools": [{"type": "web_search"}]}}]}]},
]


@pytest.mark.parametrize("tool", OWN_TOOLS, ids=json.dumps)
def test_a_tool_that_the_agent_runs_itself_passes(tool: dict[str, Any]) -> None:
    assert body({"model": "m", "tools": [tool]}) == "m"


@pytest.mark.parametrize("tool", TOOLS_OF_THE_PROVIDER, ids=json.dumps)
def test_a_tool_that_the_provider_would_run_is_refused_and_passes_with_server_tools(tool: object) -> None:
    document = {"model": "m", "tools": [OWN_TOOLS[0], tool]}
    with pytest.raises(Refused, match="server_tools is false") as caught:
        body(document)

    assert caught.value.status == 403
    assert body(document, OPEN) == "m"


@pytest.mark.parametrize("kind", ["additional_tools", "tool_search_output", "message"])
@pytest.mark.parametrize("talk", ["input", "messages", "contents"])
def test_a_tool_of_the_provider_that_is_added_within_the_talk_is_refused(talk: str, kind: str) -> None:
    for key in ("tools", "Tools"):
        added = {"type": kind, "role": "developer", key: [OWN_TOOLS[0], {"type": "web_search"}]}
        document = {"model": "m", talk: [{"type": "message"}, added]}
        with pytest.raises(Refused, match="'web_search' is not a tool of the agent") as caught:
            body(document)
        assert caught.value.status == 403
        assert body(document, OPEN) == "m"


@pytest.mark.parametrize("door", [*DOORS, *FETCHED], ids=json.dumps)
def test_what_makes_the_provider_fetch_run_or_remember_is_refused(door: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="server_tools is false") as caught:
        body({"model": "m", **door})

    assert caught.value.status == 403
    assert body({"model": "m", **door}, OPEN) == "m"


@pytest.mark.parametrize("document", HONEST, ids=json.dumps)
def test_data_of_the_agents_own_tools_and_empty_settings_pass(document: dict[str, Any]) -> None:
    assert body({"model": "m", **document}) == "m"

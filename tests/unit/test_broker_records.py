"""The rules of a broker: which upstreams, paths and credentials can be kept, and how they travel."""

import json
from typing import Any

import pytest

from codegenie.eval.broker.records import BrokerRules, Ledger, upstream_of
from tests.support.broker_lines import rules


@pytest.mark.parametrize(
    ("url", "authority", "prefix"),
    [
        ("https://api.example.com", "api.example.com", ""),
        ("https://api.example.com:8443/", "api.example.com:8443", ""),
        ("https://proxy.example.com/api/v2", "proxy.example.com", "/api/v2"),
        ("http://127.0.0.1:8080", "127.0.0.1:8080", ""),
        ("http://localhost", "localhost", ""),
        ("http://[::1]:99", "[::1]:99", ""),
    ],
)
def test_an_upstream_is_one_host_with_an_optional_prefix(url: str, authority: str, prefix: str) -> None:
    upstream = upstream_of(url)

    assert (upstream.authority, upstream.prefix) == (authority, prefix)
    assert upstream.tls is url.startswith("https")


@pytest.mark.parametrize(
    "url",
    [
        "http://api.example.com",
        "http://127.0.0.1.example.com",
        "http://10.0.0.1",
        "ftp://127.0.0.1",
        "api.example.com",
        "https://",
        "https://user:word@api.example.com",
        "https://api.example.com?x=1",
        "https://api.example.com#x",
        "https://api.example.com/..",
        "https://api.example.com/a%2e",
        "https://api.exa mple.com",
        "https://api.example.com:99999",
        "https://api.example.com/a\r\nx: y",
    ],
)
def test_an_upstream_that_is_not_one_verified_or_local_host_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        rules(url)


@pytest.mark.parametrize(
    "change",
    [
        {"paths": ("v1/messages",)},
        {"paths": ("/v1/../admin",)},
        {"paths": ("/v1//messages",)},
        {"paths": ("/v1/%6dessages",)},
        {"paths": ("/v1/messages?x=1",)},
        {"paths": ("/*/*",)},
        {"credential_header": "Host"},
        {"credential_header": "x-key: a\r\nb"},
        {"credential_header": ""},
        {"credential_format": "Bearer"},
        {"credential_format": "{} {}"},
        {"credential_format": "Bearer {}\r\nx: y"},
        {"max_requests": 0},
        {"patience_seconds": -1.0},
        {"patience_seconds": float("nan")},
    ],
    ids=repr,
)
def test_a_rule_that_cannot_be_kept_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        rules("https://api.example.com", **change)


def test_a_credential_is_put_into_its_format_and_nothing_of_it_is_looked_up() -> None:
    known = rules("https://api.example.com", credential_format="Bearer {}")

    assert known.header_value("sk-{0.__class__}") == "Bearer sk-{0.__class__}"


@pytest.mark.parametrize("credential", ["", "sk-1\r\nx: y", "sk 1 ", "schlüssel", "k" * 8193, "sk\x00"])
def test_a_credential_that_no_header_can_hold_is_refused_without_being_quoted(credential: str) -> None:
    with pytest.raises(ValueError, match="the credential is") as caught:
        rules("https://api.example.com").header_value(credential)

    assert not credential or credential not in str(caught.value)


def test_rules_and_ledgers_come_out_of_a_message_as_they_went_in() -> None:
    known = rules("https://api.example.com", models=("a", "b"), server_tools=True, patience_seconds=3.5)
    ledger = Ledger(requests=3, statuses={200: 2, 529: 1}, asked_models=("a",), first_error="status 529")

    assert BrokerRules.from_message(json.loads(json.dumps(known.as_message()))) == known
    assert Ledger.from_message(json.loads(json.dumps(ledger.as_message()))) == ledger

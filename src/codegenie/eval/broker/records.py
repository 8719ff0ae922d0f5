"""What the broker is told and what it counted: the rules of an upstream, and the ledger of one line.

Both are plain data and need the standard library only, because they travel between the harness and the
broker's process. Neither ever holds the credential.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from ipaddress import ip_address
from typing import Any, Self
from urllib.parse import urlsplit

# One `*` stands for the name of a model, as Gemini writes it into the path.
_PATH = re.compile(r"/(?:[A-Za-z0-9_:~-]|\.(?!\.)|/(?![/.])|\*)*")
_PREFIX = re.compile(r"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*")
_HOST = re.compile(r"[A-Za-z0-9.:-]+")
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")
_PRINTABLE = re.compile(r"[!-~](?:[ -~]*[!-~])?")
# Headers by which a message is framed or addressed: the broker writes them itself.
_FRAMING_HEADERS = {"host", "connection", "content-length", "transfer-encoding", "content-type"}
_CREDENTIAL_CHARACTERS = 8192


@dataclass(frozen=True, slots=True)
class Upstream:
    """The one server that a broker talks to; `prefix` stands before every path."""

    host: str
    port: int
    tls: bool
    prefix: str

    @property
    def authority(self) -> str:
        """The value of the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _default_port(tls=self.tls) else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerRules:
    """What may pass, and where to. Raises ValueError when it is made from values that cannot be kept."""

    upstream: str
    paths: tuple[str, ...]
    credential_header: str
    credential_format: str = "{}"
    models: tuple[str, ...] = ()
    server_tools: bool = False
    max_requests: int = 2000
    patience_seconds: float = 600.0

    def __post_init__(self) -> None:
        upstream_of(self.upstream)
        for path in self.paths:
            if not _PATH.fullmatch(path) or path.count("*") > 1:
                raise ValueError(f"not a path that a broker can compare: {path!r}")
        name = self.credential_header
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _FRAMING_HEADERS:
            raise ValueError(f"not a header for a credential: {name!r}")
        # Not `str.format`: a field such as {0.__class__} would be looked up.
        if self.credential_format.count("{}") != 1 or not _PRINTABLE.fullmatch(self.credential_format):
            raise ValueError(f"not a format with one {{}}: {self.credential_format!r}")
        if self.max_requests < 1 or not 0 <= self.patience_seconds <= 86400:  # noqa: PLR2004 - a day
            raise ValueError("max_requests is at least 1, and patience_seconds from 0 to 86400")

    def header_value(self, credential: str) -> str:
        """Return the value of the credential's header. Raises ValueError, without the credential in it."""
        if len(credential) > _CREDENTIAL_CHARACTERS or not _PRINTABLE.fullmatch(credential):
            raise ValueError("the credential is empty, too long, or has characters that no header may have")
        return self.credential_format.replace("{}", credential)

    def as_message(self) -> dict[str, Any]:
        """Return the rules as the broker's process reads them."""
        return asdict(self)

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        """Return the rules that the harness has sent."""
        lists = {name: tuple(message[name]) for name in ("paths", "models")}
        return cls(**{**message, **lists})


def upstream_of(url: str) -> Upstream:
    """Read the address of an upstream. Raises ValueError: `http` is for this machine only."""
    parts = urlsplit(url)
    host, prefix = parts.hostname or "", parts.path.rstrip("/")
    plain = not (parts.query or parts.fragment or "@" in parts.netloc or "?" in url or "#" in url)
    if parts.scheme not in {"http", "https"} or not plain or not _HOST.fullmatch(host):
        raise ValueError(f"not an upstream, such as https://api.example.com: {url!r}")
    if not _PREFIX.fullmatch(prefix):
        raise ValueError(f"not a path before all paths: {prefix!r}")
    tls = parts.scheme == "https"
    if not tls and not is_loopback_name(host):
        raise ValueError(
            f"an upstream by http must be on this machine, because the key is not hidden: {url!r}"
        )
    return Upstream(host, parts.port or _default_port(tls=tls), tls, prefix)


def is_loopback_name(host: str) -> bool:
    """Whether a host can only be this machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _default_port(*, tls: bool) -> int:
    return 443 if tls else 80


@dataclass(frozen=True, slots=True)
class Ledger:
    """What the broker saw on the line of one box. Tokens are sums over all answers.

    `requests` passed the rules and `refused` did not. `statuses` counts each answer of the upstream, those
    after which the broker asked again included, and `unreachable` each try without an answer. `successes` are
    answers with 2xx in which usage or model could be read. `input_tokens` holds the `cached_tokens` too.
    `unmetered` are successes whose tokens are not known, or not all of them, so the sums are least values.
    `last_activity` is a time of the machine's monotonic clock.
    """

    requests: int = 0
    refused: int = 0
    successes: int = 0
    unmetered: int = 0
    unreachable: int = 0
    statuses: Mapping[int, int] = field(default_factory=dict)
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    asked_models: tuple[str, ...] = ()
    answered_models: tuple[str, ...] = ()
    provider_wait_ms: int = 0
    patience_over: bool = False
    first_error: str | None = None
    first_refusal: str | None = None
    last_activity: float | None = None

    def as_message(self) -> dict[str, Any]:
        """Return the ledger as the harness reads it."""
        return asdict(self)

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        """Return the ledger that the broker's process has sent."""
        lists = {name: tuple(message[name]) for name in ("asked_models", "answered_models")}
        statuses = {int(status): count for status, count in message["statuses"].items()}
        return cls(**{**message, **lists, "statuses": statuses})

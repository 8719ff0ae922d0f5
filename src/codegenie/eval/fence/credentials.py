"""Find keys that look real. Well-known shapes need a prefix and a length, so that prose does not match."""

import re
from collections.abc import Iterator
from typing import NamedTuple


class Credential(NamedTuple):
    """Where the first key of a kind begins, how long it is and how many there are; never its text."""

    kind: str
    start: int
    length: int
    times: int


# The kind, a literal that every key of the kind contains (a fast search), and the whole shape.
_SHAPES = [
    (
        "an AWS access key id",
        (b"AKIA", b"ASIA"),
        rb"(?<![A-Z0-9])A[KS]IA(?!\w{0,12}EXAMPLE)[A-Z2-7]{16}(?![A-Z0-9])",
    ),
    ("a GitHub token", (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_"), rb"\bgh[pousr]_[A-Za-z0-9]{36,255}\b"),
    ("a GitHub token", (b"github_pat_",), rb"\bgithub_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}\b"),
    ("a GitLab token", (b"glpat-",), rb"\bglpat-[A-Za-z0-9_-]{20,64}"),
    ("a Slack token", (b"xox",), rb"\bxox[abeoprs]-[0-9]{8,14}-[A-Za-z0-9-]{16,250}"),
    (
        "a Slack webhook",
        (b"hooks.slack.com/services/T",),
        rb"hooks\.slack\.com/services/T\w{8,12}/B\w{8,12}/\w{20,32}",
    ),
    ("a Stripe key", (b"_live_",), rb"\b[rs]k_live_[A-Za-z0-9]{24,128}\b"),
    ("a Google API key", (b"AIza",), rb"(?<![\w-])AIza[A-Za-z0-9_-]{35}(?![\w-])"),
    ("an Anthropic key", (b"sk-ant-",), rb"\bsk-ant-[a-z]+[0-9]{2}-[A-Za-z0-9_-]{80,120}"),
    ("an OpenAI key", (b"T3BlbkFJ",), rb"\bsk-[A-Za-z0-9_-]{16,90}T3BlbkFJ[A-Za-z0-9_-]{16,90}"),
    ("a Hugging Face token", (b"hf_",), rb"\bhf_[A-Za-z0-9]{34}\b"),
    ("an npm token", (b"npm_",), rb"\bnpm_[A-Za-z0-9]{36}\b"),
    ("a PyPI token", (b"pypi-AgE",), rb"\bpypi-AgE[A-Za-z0-9_-]{60,250}"),
    ("a SendGrid key", (b"SG.",), rb"\bSG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}\b"),
    ("a DigitalOcean token", (b"_v1_",), rb"\bdo[opr]_v1_[a-f0-9]{64}\b"),
    ("a private key", (b"PRIVATE KEY",), rb"-----BEGIN (?:[A-Z0-9]{1,16} ){0,3}PRIVATE KEY(?: BLOCK)?-----"),
]
_BY_PIECE = [(piece, kind, re.compile(shape)) for kind, pieces, shape in _SHAPES for piece in pieces]


def find_credentials(raw: bytes) -> Iterator[Credential]:
    """Yield the first match of each kind of key in a file."""
    possible = {shape: kind for piece, kind, shape in _BY_PIECE if piece in raw}
    for shape, kind in possible.items():
        if first := shape.search(raw):
            yield Credential(kind, first.start(), len(first[0]), sum(1 for _ in shape.finditer(raw)))

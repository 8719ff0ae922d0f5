"""What the fence finds in a copy of the stub that was changed, and keys that only look alive."""

from pathlib import Path

from codegenie.eval.fence import Finding, inspect_paths
from tests.support.stub_benches import Edit, copy_stub, in_turn, replaced

# In two pieces each, so that no scanner takes this file for a leak.
LIVE_KEYS = {
    "an AWS access key id": "AKIA" + "Z7QW3MNB5VCX2LKJ",
    "a GitHub token": "ghp_" + "a1B2" * 9,
    "a fine-grained GitHub token": "github_pat_" + "a1" * 11 + "_" + "b" * 59,
    "a GitLab token": "glpat-" + "x" * 20,
    "a Slack token": "xoxb-" + "1" * 12 + "-" + "a" * 24,
    "a Slack webhook": "https://hooks.slack.com/services/" + "T0000000A/B0000000B/" + "c" * 24,
    "a Stripe key": "sk_" + "live_" + "9" * 24,
    "a Google API key": "AIza" + "q" * 35,
    "an Anthropic key": "sk-ant-" + "api03-" + "k" * 90,
    "an OpenAI key": "sk-" + "a" * 20 + "T3Blbk" + "FJ" + "b" * 20,
    "a Hugging Face token": "hf_" + "h" * 34,
    "an npm token": "npm_" + "n" * 36,
    "a PyPI token": "pypi-" + "AgE" + "p" * 70,
    "a SendGrid key": "SG" + "." + "s" * 22 + "." + "t" * 43,
    "a DigitalOcean token": "dop" + "_v1_" + "0a" * 32,
    "a private key": "-----BEGIN " + "OPENSSH PRIVATE KEY-----",
}

SILVER: Edit = replaced("registration.py", '"bronze": 3', '"silver": 3')


def found_in(bench: Path) -> tuple[Finding, ...]:
    """Return what the fence finds in one task class."""
    return inspect_paths([bench]).findings


def found_after(root: Path, *edits: Edit) -> tuple[Finding, ...]:
    """Return what the fence finds in a fresh copy of the stub after these edits."""
    bench = copy_stub(root)
    in_turn(*edits)(bench)
    return found_in(bench)


def rules_of(findings: tuple[Finding, ...]) -> list[str]:
    """Return the rules of findings, in their order."""
    return [finding.rule for finding in findings]

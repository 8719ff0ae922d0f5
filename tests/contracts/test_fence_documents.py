"""The page of the fence has a row for every rule that says what the rule says, and the hook works."""

import re
from pathlib import Path

import pytest
import yaml

from codegenie.eval.cli import run_command_line
from codegenie.eval.fence import RULES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "fence.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(F\d{3})` \| (.*) \|$", re.MULTILINE)


def test_the_page_has_a_row_for_every_rule_and_says_the_same() -> None:
    said = {rule: tuple(cells.split(" | ")) for rule, cells in ROW.findall(PAGE)}

    assert said == {
        rule_id: (rule.title, rule.severity, "yes" if rule.fixable else "no", rule.why, rule.do)
        for rule_id, rule in RULES.items()
    }


def test_rules_are_listed_in_order_and_cite_a_reason() -> None:
    assert list(RULES) == sorted(RULES)
    assert [rule for rule, _ in ROW.findall(PAGE)] == list(RULES)
    assert len({rule.title for rule in RULES.values()}) == len(RULES)


def test_the_hook_calls_a_command_that_exists_and_is_never_skipped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))

    assert hook["id"] == "codegenie-eval-fence"
    assert (hook["language"], hook["pass_filenames"], hook["always_run"]) == ("python", False, True)
    program, *arguments = hook["entry"].split()
    assert program == "codegenie"
    assert run_command_line([*arguments, "--help"]) == 0
    assert "PATH" in capsys.readouterr().out

"""Which breakdown keys are banned, and as which word (ADR-0008)."""

import pytest

from codegenie.eval.breakdown import banned_part


@pytest.mark.parametrize(
    ("key", "word"),
    [
        ("confidence", "confidence"),
        ("overconfidence_rate", "confidence"),
        ("con_fidence", "confidence"),
        ("c.o.n.f.i.d.e.n.c.e", "confidence"),
        ("CONFIDENCE", "confidence"),
        ("con-fidence", "confidence"),
        ("llm", "llm"),
        ("llms", "llm"),
        ("score.llm_judge", "llm"),
        ("self_reported", "self_reported"),
        ("selfreported", "self_reported"),
        ("self.reported.score", "self_reported"),
        ("is_se_lf_re_ported", "self_reported"),
        ("model_says", "model_says"),
        ("modelsays", "model_says"),
        ("what.model.says", "model_says"),
    ],
)
def test_a_banned_word_is_found_and_named_as_the_contract_writes_it(key: str, word: str) -> None:
    assert banned_part(key) == word


@pytest.mark.parametrize(
    "key",
    ["passed", "all_metrics", "l_l_m", "l.l.m", "confident", "self_report", "model_said", "fidence.con", ""],
)
def test_a_key_that_only_looks_like_one_is_allowed(key: str) -> None:
    assert banned_part(key) is None

"""The policy file: what is refused and where, what is assumed, and what its digest covers."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegenie.eval.errors import TierConfigInvalid
from codegenie.eval.gate.deciding import load_policy
from codegenie.eval.gate.policy import TierPolicy, read_policy
from codegenie.eval.limits import LIMITS

THRESHOLDS = "thresholds: {bronze: 0.5, silver: 0.8, gold: 0.9}\n"
WHERE = "trust-tiers.yaml"

# What is wrong, the file, and a part of the message that names the place.
WRONG: dict[str, tuple[bytes | str, str]] = {
    "nothing at all": ("", "empty"),
    "only a comment": ("# later\n", "empty"),
    "an empty document": ("---\n", "not a mapping"),
    "a list": ("- thresholds\n", "not a mapping"),
    "a word": ("bronze\n", "not a mapping"),
    "two documents": (f"{THRESHOLDS}---\n{THRESHOLDS}", "more than one YAML document"),
    "a byte order mark": (b"\xef\xbb\xbf" + THRESHOLDS.encode(), "byte order mark"),
    "Latin-1": (b"# caf\xe9\n" + THRESHOLDS.encode(), "not UTF-8 at byte 5"),
    "UTF-16": (THRESHOLDS.encode("utf-16"), "not UTF-8"),
    "more than the cap": (THRESHOLDS + "#" * LIMITS.yaml_bytes, "more than the"),
    "broken YAML": ("thresholds: {bronze: 0.5\n", "not YAML"),
    "a control character": ("thresholds: {bronze: 0.5}\x00\n", "not YAML"),
    "depth beyond the limit": ("thresholds: " + "[" * 40 + "]" * 40, "levels deep"),
    "an unknown setting": (f"{THRESHOLDS}threshold: 0.5\n", "no setting 'threshold'"),
    "a setting in capitals": (f"{THRESHOLDS}Alpha: 0.05\n", "no setting 'Alpha'"),
    "an unknown setting that steers terminals": (f'{THRESHOLDS}"\\e[31m": 1\n', "no setting '\\x1b[31m'"),
    "a digest of its own": (f"{THRESHOLDS}digest: {'0' * 64}\n", "no setting 'digest'"),
    "a setting twice": (f"{THRESHOLDS}alpha: 0.01\nalpha: 0.2\n", "line 3: key 'alpha' appears twice"),
    "a tier twice": ("thresholds: {bronze: 0.5, bronze: 0.1}\n", "key 'bronze' appears twice"),
    "an anchor": (f"{THRESHOLDS}alpha: &a 0.05\n", "line 2: anchors"),
    "an alias": ("thresholds: &t {bronze: 0.5}\ncurrent_tiers: *t\n", "line 1: anchors"),
    "a merge key": ("thresholds: {<<: {bronze: 0.5}}\n", "merge keys"),
    "a tag": (f"{THRESHOLDS}alpha: !!float 0.05\n", "line 2: tags"),
    "a number for a tier": ("thresholds: {1: 0.5}\n", "a key is not a plain word"),
    "no thresholds": ("alpha: 0.05\n", "thresholds names no tier"),
    "empty thresholds": ("thresholds: {}\n", "thresholds names no tier"),
    "thresholds without a value": ("thresholds:\n", "thresholds is not a mapping"),
    "thresholds as a list": ("thresholds: [0.5, 0.8]\n", "thresholds is not a mapping"),
    "thresholds as a number": ("thresholds: 0.5\n", "thresholds is not a mapping"),
    "NaN": ("thresholds: {bronze: NaN}\n", "thresholds.bronze is 'NaN'"),
    "YAML's NaN": ("thresholds: {bronze: .nan}\n", "thresholds.bronze is '.nan'"),
    "an infinity": ("thresholds: {bronze: .inf}\n", "thresholds.bronze is '.inf'"),
    "minus infinity": ("thresholds: {bronze: -.inf}\n", "thresholds.bronze is '-.inf'"),
    "an overflow": ("thresholds: {bronze: 1e999}\n", "thresholds.bronze is '1e999'"),
    "an exponent": ("thresholds: {bronze: 5e-1}\n", "thresholds.bronze is '5e-1'"),
    "a bare dot": ("thresholds: {bronze: .5}\n", "thresholds.bronze is '.5'"),
    "a leading zero": ("thresholds: {bronze: 00.5}\n", "thresholds.bronze is '00.5'"),
    "a comma for a dot": ('thresholds: {bronze: "0,5"}\n', "thresholds.bronze is '0,5'"),
    "other digits": ("thresholds: {bronze: \u0660.\u0665}\n", "thresholds.bronze is"),
    "a quoted number": ('thresholds: {bronze: "0.5"}\n', "thresholds.bronze is '0.5'"),
    "a singly quoted number": ("thresholds: {bronze: '0.5'}\n", "thresholds.bronze is '0.5'"),
    "a block for a number": ("thresholds:\n  bronze: |\n    0.5\n", "thresholds.bronze is"),
    "a boolean": ("thresholds: {bronze: true}\n", "thresholds.bronze is 'true'"),
    "a boolean of YAML 1.1": ("thresholds: {bronze: yes}\n", "thresholds.bronze is 'yes'"),
    "null": ("thresholds: {bronze: null}\n", "thresholds.bronze is 'null'"),
    "no value": ("thresholds: {bronze: }\n", "thresholds.bronze is ''"),
    "a percentage": ("thresholds: {bronze: 50%}\n", "thresholds.bronze is '50%'"),
    "a list for a number": ("thresholds: {bronze: [0.5]}\n", "thresholds.bronze is ["),
    "a negative threshold": ("thresholds: {bronze: -0.5}\n", "thresholds.bronze is -0.5"),
    "a threshold of zero": ("thresholds: {bronze: 0}\n", "thresholds.bronze is 0.0"),
    "a threshold of minus zero": ("thresholds: {bronze: -0.0}\n", "thresholds.bronze is -0.0"),
    "a threshold above one": ("thresholds: {bronze: 1.000001}\n", "thresholds.bronze is 1.000001"),
    "percent without the sign": ("thresholds: {bronze: 50}\n", "thresholds.bronze is 50.0"),
    "falling thresholds": ("thresholds: {bronze: 0.8, silver: 0.5}\n", "thresholds.silver is 0.5"),
    "equal thresholds": ("thresholds: {bronze: 0.8, silver: 0.8}\n", "thresholds.silver is 0.8"),
    "a tier with blanks": ("thresholds: {'a tier': 0.5}\n", "'a tier', which is not the name of a tier"),
    "a tier in capitals": ("thresholds: {Bronze: 0.5}\n", "'Bronze', which is not"),
    "a tier from another script": ("thresholds: {br\u043enze: 0.5}\n", "'br\\u043enze', which is not"),
    "a tier that ends its line": ('thresholds: {"bronze\\n": 0.5}\n', "'bronze\\n', which is not"),
    "an endless name": (f"thresholds: {{{'x' * 900}: 0.5}}\n", "which is not the name of a tier"),
    "isolation of an unknown tier": (f"{THRESHOLDS}minimum_isolation: {{iron: landlock}}\n", "tier 'iron'"),
    "an unknown isolation class": (
        f"{THRESHOLDS}minimum_isolation: {{gold: none}}\n",
        "minimum_isolation.gold is not one of",
    ),
    "isolation as a number": (f"{THRESHOLDS}minimum_isolation: {{gold: 3}}\n", "minimum_isolation.gold"),
    "a place of the agent for an unknown tier": (
        f"{THRESHOLDS}minimum_sut_boundary: {{iron: landlock}}\n",
        "tier 'iron'",
    ),
    "a place where an agent is never evidence": (
        f"{THRESHOLDS}minimum_sut_boundary: {{gold: in-process}}\n",
        "minimum_sut_boundary.gold is not one of process, landlock, namespace",
    ),
    "the place of the harness's own": (
        f"{THRESHOLDS}minimum_sut_boundary: {{bronze: harness}}\n",
        "minimum_sut_boundary.bronze is not one of",
    ),
    "a class of rubrics for an agent": (
        f"{THRESHOLDS}minimum_sut_boundary: {{bronze: subprocess}}\n",
        "minimum_sut_boundary.bronze is not one of",
    ),
    "a place as a list": (f"{THRESHOLDS}minimum_sut_boundary: {{gold: []}}\n", "minimum_sut_boundary.gold"),
    "a place for all": (
        f"{THRESHOLDS}minimum_sut_boundary: landlock\n",
        "minimum_sut_boundary is not a mapping",
    ),
    "isolation for all": (f"{THRESHOLDS}minimum_isolation: landlock\n", "minimum_isolation is not a mapping"),
    "held-out cases of an unknown tier": (f"{THRESHOLDS}minimum_held_out: {{iron: 5}}\n", "tier 'iron'"),
    "negative held-out cases": (f"{THRESHOLDS}minimum_held_out: {{gold: -1}}\n", "minimum_held_out.gold"),
    "half a held-out case": (f"{THRESHOLDS}minimum_held_out: 2.5\n", "minimum_held_out.bronze"),
    "quoted held-out cases": (f'{THRESHOLDS}minimum_held_out: "5"\n', "minimum_held_out.bronze"),
    "held-out cases without a value": (f"{THRESHOLDS}minimum_held_out:\n", "minimum_held_out.bronze"),
    "held-out cases as a list": (f"{THRESHOLDS}minimum_held_out: [5]\n", "minimum_held_out.bronze"),
    "no days": (f"{THRESHOLDS}maximum_age_days: 0\n", "maximum_age_days"),
    "days that have passed": (f"{THRESHOLDS}maximum_age_days: -90\n", "maximum_age_days"),
    "half days": (f"{THRESHOLDS}maximum_age_days: 0.5\n", "maximum_age_days"),
    "days for ever": (f"{THRESHOLDS}maximum_age_days: .inf\n", "maximum_age_days"),
    "days as a word": (f"{THRESHOLDS}maximum_age_days: never\n", "maximum_age_days"),
    "an alpha of zero": (f"{THRESHOLDS}alpha: 0\n", "alpha is 0.0"),
    "a negative alpha": (f"{THRESHOLDS}alpha: -0.05\n", "alpha is -0.05"),
    "an alpha that certifies nothing": (f"{THRESHOLDS}alpha: 0.21\n", "alpha is 0.21"),
    "alpha in percent": (f"{THRESHOLDS}alpha: 5\n", "alpha is 5.0"),
    "a quoted alpha": (f'{THRESHOLDS}alpha: "0.05"\n', "alpha is '0.05'"),
    "alpha is not a number": (f"{THRESHOLDS}alpha: nan\n", "alpha is 'nan'"),
    "a current tier without threshold": (
        f"{THRESHOLDS}current_tiers: {{fix-bugs: iron}}\n",
        "current_tiers.fix-bugs names the tier 'iron'",
    ),
    "a current tier that is a number": (f"{THRESHOLDS}current_tiers: {{fix-bugs: 1}}\n", "tier 1,"),
    "a current tier that is a list": (f"{THRESHOLDS}current_tiers: {{fix-bugs: [bronze]}}\n", "['bronze']"),
    "a task class that cannot be": (f"{THRESHOLDS}current_tiers: {{../x: bronze}}\n", "'../x', which is not"),
    "current tiers as a list": (f"{THRESHOLDS}current_tiers: [bronze]\n", "current_tiers is not a mapping"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_policy_is_refused_with_file_and_place(name: str) -> None:
    content, place = WRONG[name]
    raw = content if isinstance(content, bytes) else content.encode()

    with pytest.raises(TierConfigInvalid) as caught:
        read_policy(raw, WHERE)

    assert caught.value.exit_code == 2
    assert caught.value.where == WHERE
    assert place in caught.value.message
    assert len(caught.value.message) < 250


def test_the_table_of_wrong_policies_is_long_and_its_neighbours_are_taken() -> None:
    assert len(WRONG) >= 40
    for right in (
        "thresholds: {bronze: 1}\n",
        "thresholds: {bronze: 0.000000000000000001, silver: 1.0}\n",
        "---\nthresholds: {bronze: +0.5}\n...\n",
        f"{THRESHOLDS}alpha: 0.2\nmaximum_age_days: 1\nminimum_held_out: 0\n",
        "thresholds:\n  'bronze': 0.5 # quoted names are names\n",
    ):
        assert read_policy(right.encode(), WHERE).thresholds


def test_what_a_policy_does_not_say_has_safe_defaults() -> None:
    policy = read_policy(b"thresholds: {a: 0.1, b: 0.2, c: 0.3, d: 0.4}", WHERE)

    assert policy.minimum_isolation == {
        "a": "subprocess",
        "b": "landlock",
        "c": "namespace",
        "d": "namespace",
    }
    assert policy.minimum_sut_boundary == {
        "a": "process",
        "b": "landlock",
        "c": "namespace",
        "d": "namespace",
    }
    assert policy.minimum_held_out == {"a": 0, "b": 5, "c": 5, "d": 5}
    assert policy.maximum_age_days == 90
    assert policy.alpha == 0.05
    assert policy.current_tiers == {}


def test_what_a_policy_says_of_one_tier_leaves_the_defaults_of_the_others() -> None:
    extra = "minimum_isolation: {silver: subprocess}\nminimum_held_out: {bronze: 2}\n"
    policy = read_policy((THRESHOLDS + extra).encode(), WHERE)

    assert policy.minimum_isolation == {
        "bronze": "subprocess",
        "silver": "subprocess",
        "gold": "namespace",
    }
    assert policy.minimum_held_out == {"bronze": 2, "silver": 5, "gold": 5}
    assert read_policy(f"{THRESHOLDS}minimum_held_out: 3\n".encode(), WHERE).minimum_held_out == {
        "bronze": 3,
        "silver": 3,
        "gold": 3,
    }


def test_silver_and_gold_ask_for_a_box_although_a_policy_leaves_out_the_tiers_below_them() -> None:
    def boxes(tiers: str) -> dict[str, str]:
        return dict(read_policy(f"thresholds: {{{tiers}}}".encode(), WHERE).minimum_sut_boundary)

    assert boxes("gold: 0.9") == {"gold": "namespace"}
    assert boxes("silver: 0.8") == {"silver": "landlock"}
    assert boxes("a: 0.1, gold: 0.2, silver: 0.3") == {
        "a": "process",
        "gold": "namespace",
        "silver": "namespace",
    }


def test_the_next_tier_is_the_one_above_the_current_and_none_at_the_top() -> None:
    policy = read_policy(f"{THRESHOLDS}current_tiers: {{a: bronze, b: gold}}\n".encode(), WHERE)

    assert [policy.next_tier(name) for name in ("unknown", "a", "b")] == ["bronze", "silver", None]


def test_a_policy_does_not_change_after_it_was_read() -> None:
    policy = read_policy(THRESHOLDS.encode(), WHERE)

    with pytest.raises(TypeError):
        policy.thresholds["bronze"] = 0.1
    with pytest.raises(ValueError, match="frozen"):
        policy.alpha = 0.2


def test_a_policy_with_a_number_that_is_none_cannot_be_made_by_hand() -> None:
    fields = read_policy(THRESHOLDS.encode(), WHERE).model_dump()

    assert TierPolicy(**fields).alpha == 0.05
    for field, value in (("thresholds", {"bronze": float("nan")}), ("alpha", float("nan"))):
        with pytest.raises(ValueError, match="finite"):
            TierPolicy(**{**fields, field: value})


BASE = {
    "thresholds": "{bronze: 0.5, silver: 0.8, gold: 0.9}",
    "minimum_isolation": "{bronze: subprocess, silver: landlock, gold: namespace}",
    "minimum_sut_boundary": "{bronze: process, silver: landlock, gold: namespace}",
    "minimum_held_out": "{bronze: 0, silver: 5, gold: 5}",
    "maximum_age_days": "90",
    "alpha": "0.05",
    "current_tiers": "{}",
}
CHANGES = [
    ("thresholds", "{bronze: 0.5, silver: 0.8, gold: 0.900000000000001}"),
    ("thresholds", "{bronze: 0.5, silver: 0.8, platinum: 0.9}"),
    ("thresholds", "{bronze: 0.4, silver: 0.8, gold: 0.9}"),
    ("minimum_isolation", "{bronze: landlock}"),
    ("minimum_isolation", "{gold: landlock}"),
    ("minimum_sut_boundary", "{silver: process}"),
    ("minimum_sut_boundary", "{gold: landlock}"),
    ("minimum_sut_boundary", "{bronze: landlock}"),
    ("minimum_held_out", "{bronze: 1, silver: 5, gold: 5}"),
    ("minimum_held_out", "{bronze: 0, silver: 4, gold: 5}"),
    ("maximum_age_days", "91"),
    ("alpha", "0.050000000000001"),
]


def policy_text(settings: dict[str, str]) -> bytes:
    return "".join(f"{name}: {value}\n" for name, value in settings.items()).encode()


def digest(settings: dict[str, str]) -> str:
    return read_policy(policy_text(settings), WHERE).digest


def without_gold(settings: dict[str, str]) -> dict[str, str]:
    """Drop what speaks of gold, for a change that renames it."""
    return {
        name: value for name, value in settings.items() if name in {"thresholds", "alpha", "maximum_age_days"}
    }


@pytest.mark.parametrize(("setting", "value"), CHANGES)
def test_changing_any_setting_but_the_current_tiers_changes_the_digest(setting: str, value: str) -> None:
    prepare: Callable[[dict[str, str]], dict[str, str]] = without_gold if "platinum" in value else dict

    assert digest(prepare({**BASE, setting: value})) != digest(prepare(BASE))


WAIVER = "{refund: run-1, by: J. Doe, on: 2026-11-21, because: the power failed}"


def test_a_waiver_is_read_and_does_not_change_the_digest() -> None:
    plain = read_policy(b"thresholds: {bronze: 0.5}\n", "the policy")
    waived = read_policy(f"thresholds: {{bronze: 0.5}}\nwaivers: [{WAIVER}]\n".encode(), "the policy")
    (waiver,) = waived.waivers

    assert (plain.waivers, plain.digest) == ((), waived.digest)
    assert (waiver.refund, waiver.by, waiver.on.isoformat()) == ("run-1", "J. Doe", "2026-11-21")
    assert waiver.because == "the power failed"


@pytest.mark.parametrize(
    "waivers",
    [
        "{}",
        "nobody",
        "[nobody]",
        "[[]]",
        "[{}]",
        WAIVER,
        f"[{WAIVER}, {WAIVER}]",
        f"[{WAIVER.replace('refund', 'forget')}]",
        f"[{WAIVER.replace('because', 'why')}]",
        f"[{WAIVER.replace('by: J. Doe, ', '')}]",
        f"[{WAIVER.replace('refund: run-1, ', '')}]",
        f"[{WAIVER.replace('J. Doe', '1')}]",
        f"[{WAIVER.replace('J. Doe', '')}]",
        f"[{WAIVER.replace('J. Doe', chr(34) + '  ' + chr(34))}]",
        f"[{WAIVER.replace('the power failed', 'x' * 201)}]",
        f"[{WAIVER.replace('the power failed', chr(34) + 'a' + chr(92) + 'nb' + chr(34))}]",
        f"[{WAIVER.replace('run-1', '../run')}]",
        f"[{WAIVER.replace('run-1', 'latest run')}]",
        f"[{WAIVER.replace('2026-11-21', '2026-02-30')}]",
        f"[{WAIVER.replace('2026-11-21', '21.11.2026')}]",
        f"[{WAIVER.replace('2026-11-21', '20261121')}]",
        f"[{WAIVER.replace('2026-11-21', '2026-11-21T00:00:00')}]",
        f"[{WAIVER.replace('on: 2026-11-21, ', '')}]",
        f"[{WAIVER.replace('{', '{also: more, ')}]",
    ],
)
def test_a_waiver_of_another_form_is_refused(waivers: str) -> None:
    with pytest.raises(TierConfigInvalid, match="waiver"):
        read_policy(f"thresholds: {{bronze: 0.5}}\nwaivers: {waivers}\n".encode(), "the policy")


@pytest.mark.parametrize("current", ["{a: bronze}", "{a: gold, b: silver}", "{dependency-pin: silver}"])
def test_a_promotion_does_not_change_the_digest(current: str) -> None:
    assert digest({**BASE, "current_tiers": current}) == digest(BASE)


def test_the_digest_is_that_of_the_meaning_and_not_of_the_spelling() -> None:
    defaults = {"thresholds": BASE["thresholds"]}
    spelled = {"alpha": "+0.050", **defaults, "maximum_age_days": "90"}
    tiers_in_another_order = {**BASE, "minimum_isolation": "{gold: namespace, bronze: subprocess}"}

    assert digest(defaults) == digest(BASE) == digest(spelled) == digest(tiers_in_another_order)
    assert digest({"thresholds": "{bronze: 1}"}) == digest({"thresholds": "{bronze: 1.0}"})


def test_a_policy_keeps_the_digest_that_it_had_before_it_asked_where_agents_run() -> None:
    assert digest({"thresholds": BASE["thresholds"]}) == (
        "c368b2cb4fb0e0f3bccb3facff38eb3969587f25a68985343c020b546cb67815"
    )


def test_thresholds_have_one_order_and_another_is_refused() -> None:
    with pytest.raises(TierConfigInvalid, match="rise"):
        digest({"thresholds": "{silver: 0.8, bronze: 0.5, gold: 0.9}"})


@given(
    st.lists(st.integers(1, 10**6), min_size=1, max_size=6, unique=True),
    st.lists(st.integers(1, 10**6), min_size=1, max_size=6, unique=True),
)
def test_two_lists_of_thresholds_share_a_digest_only_if_they_are_the_same(
    first: list[int], second: list[int]
) -> None:
    def of(values: list[int]) -> str:
        tiers = ", ".join(f"t{n}: {value / 10**6:.6f}" for n, value in enumerate(sorted(values)))
        return digest({"thresholds": f"{{{tiers}}}"})

    assert (of(first) == of(second)) == (sorted(first) == sorted(second))


def read_or_refuse(raw: bytes) -> TierPolicy | TierConfigInvalid:
    try:
        return read_policy(raw, WHERE)
    except TierConfigInvalid as refusal:
        return refusal


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_bytes_make_the_reader_raise_anything_else(raw: bytes) -> None:
    result = read_or_refuse(raw)

    if isinstance(result, TierConfigInvalid):
        assert result.where == WHERE
    else:
        assert all(0.0 < threshold <= 1.0 for threshold in result.thresholds.values())


def test_a_policy_that_is_not_there_is_none_and_one_that_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("gone")

    assert load_policy(tmp_path / "gone.yaml") is None
    assert load_policy(tmp_path / "dangling") is None
    for place in (tmp_path, tmp_path / "pipe", tmp_path / "loop", Path("/dev/zero")):
        with pytest.raises(TierConfigInvalid) as caught:
            load_policy(place)
        assert caught.value.where == str(place)


def test_a_link_to_the_policy_of_the_organisation_is_followed(tmp_path: Path) -> None:
    (tmp_path / "policy").write_text(THRESHOLDS, encoding="utf-8")
    (tmp_path / "trust-tiers.yaml").symlink_to("policy")

    policy = load_policy(tmp_path / "trust-tiers.yaml")

    assert policy is not None
    assert policy.thresholds["gold"] == 0.9


def test_a_wrong_policy_stops_a_run_before_the_bench_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "trust-tiers.yaml").write_text("thresholds: {bronze: .nan}\n", encoding="utf-8")
    arguments = ["-m", "codegenie", "eval", "run", "no-such-class", "--sut", "null"]
    ended = subprocess.run(
        [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert ended.returncode == 2
    assert "thresholds.bronze is '.nan'" in ended.stderr
    assert "trust-tiers.yaml" in ended.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / "trust-tiers.yaml"]

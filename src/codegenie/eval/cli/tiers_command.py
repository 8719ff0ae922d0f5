"""`codegenie eval tiers`: show the promotion policy that is in force, or write a first one to edit."""

import os
from pathlib import Path
from typing import Any

import click

from codegenie.eval.cli.output import say, say_json
from codegenie.eval.cli.settings import json_option, tiers_option
from codegenie.eval.errors import HarnessFailure, TierConfigInvalid
from codegenie.eval.gate.deciding import load_policy
from codegenie.eval.gate.policy import FIRST_POLICY, TierPolicy
from codegenie.eval.system.file_writing import written_beside
from codegenie.eval.wording import counted


@click.command("tiers")
@tiers_option
@click.option("--write", is_flag=True, help="Write a first policy to edit; an existing file is not changed.")
@json_option
def command(tiers: str, write: bool, as_json: bool) -> None:
    """Show the promotion policy, or write a first one.

    A run is evidence only for the policy that it was started under: write it before you measure.
    """
    if write:
        _write_first(Path(tiers))
    policy = load_policy(Path(tiers))
    if policy is None:
        raise TierConfigInvalid(
            "there is no policy file", where=tiers, hint="`codegenie eval tiers --write` makes one"
        )
    if as_json:
        document: dict[str, Any] = {"file": tiers, "written": write, **policy.model_dump(mode="json")}
        say_json("codegenie.eval.tiers/1", document)
    else:
        say([*([f"{tiers} is written"] if write else []), *_lines(policy)])


def _write_first(path: Path) -> None:
    try:
        with written_beside(path, (FIRST_POLICY.encode(),), private=False) as temporary:
            # A link and not a rename: an existing policy is a human decision and must not be replaced.
            os.link(temporary, path)
    except FileExistsError:
        raise TierConfigInvalid(
            "there is a policy file already, and it was not changed",
            where=str(path),
            hint="edit it, or name another with --tiers",
        ) from None
    except OSError as error:
        raise HarnessFailure(f"cannot write the policy: {error.strerror}", where=str(path)) from None


def _lines(policy: TierPolicy) -> list[str]:
    lines = [
        f"{tier:16} certified {threshold:g} · isolation {policy.minimum_isolation[tier]}"
        f" · agent in {policy.minimum_sut_boundary[tier]}"
        f" · {counted(policy.minimum_held_out[tier], 'held-out case')}"
        for tier, threshold in policy.thresholds.items()
    ]
    lines += [f"current          {name}: {tier}" for name, tier in policy.current_tiers.items()]
    lines.append(
        f"evidence         at most {counted(policy.maximum_age_days, 'day')} old · alpha {policy.alpha:g}"
    )
    return [*lines, f"digest           {policy.digest}"]

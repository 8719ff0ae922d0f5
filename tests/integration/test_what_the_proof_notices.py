"""A confinement that lacks something is not proved any more: some losses of every kind, each in a copy.

`scripts/proof_notices.py` plays every restriction; these are those that a first proof did not notice, one of
each kind, and some that are no restriction of the table.
"""

import os

import pytest

from codegenie.eval.isolation.confinement import visible_paths
from tests.hostile.engine.noticing import notice
from tests.hostile.engine.table import Edit, Switch, read_portfolio
from tests.support.sampling import sampled

RESTRICTIONS = read_portfolio().restrictions

NOTICED_BY = {
    "landlock-device-calls": "device-call",
    "root-nodev": "outside-mount-flags",
    "box-mode": "open-room",
    "packages-are-covered": "installed-packages",
    "root-holds-what-the-layout-names": "stat-system",
    "landlock-library-alone": "list-programs",
    "filter-absent-calls": "absent-calls",
    "filter-architecture": "old-door",
    "filter-x32": "x32",
    "filter-sendto-upper-half": "argument-sendto",
    "filter-flock": "unlisted-calls",
    "limit-core": "outside-limits",
    "limit-threads": "outside-threads",
    "environment": "environment",
    "session": "outside-session",
    "mask": "outside-mask",
    "signals-are-our-own": "outside-signals",
    "zygote-is-not-looked-into": "outside-zygote",
}

# One of Landlock, of the filter, of the limits and of the mounts; `make test-all` takes away the others too.
IN_EVERY_RUN = {"landlock-device-calls", "filter-flock", "limit-core", "root-nodev"}


def test_with_every_restriction_in_place_both_classes_are_proved() -> None:
    assert notice(None).by is None


# Where nothing was installed below the library there is nothing to cover.
if not visible_paths.masked():
    NOTICED_BY.pop("packages-are-covered")


@pytest.mark.parametrize("name", sampled(NOTICED_BY, IN_EVERY_RUN.__contains__))
def test_a_restriction_that_is_gone_is_noticed(name: str) -> None:
    assert f"'{NOTICED_BY[name]}' was not blocked" in (notice(RESTRICTIONS[name]).by or "")


CONFINEMENT = "isolation/confinement"
LOSSES = {
    "a deadline three seconds late": (
        Edit(f"{CONFINEMENT}/zygote.py", "started + seconds)", "started + seconds + 3)"),
        "deadline",
    ),
    "a device of the kernel's log": (
        Edit(
            f"{CONFINEMENT}/visible_paths.py",
            '"/dev/zero": READ_FILE,',
            '"/dev/zero": READ_FILE, "/dev/kmsg": READ_FILE,',
        ),
        "outside-devices",
    ),
    "soft limits only": (
        Edit(f"{CONFINEMENT}/lockdown.py", "(min(soft, highest), highest)", "(min(soft, highest), ours)"),
        "outside-limits",
    ),
    "any filter in place of ours": (
        Edit(
            f"{CONFINEMENT}/seccomp.py",
            "    return _headed(machine, _ranges(machine, allowed), _returns(_KILL_PROCESS))\n",
            "    return _headed(machine, [(0, _returns(_ALLOW))], _returns(_KILL_PROCESS))\n",
        ),
        "exec-interpreter",
    ),
    "a filter that refuses too much": (
        Edit(f"{CONFINEMENT}/syscall_numbers.py", " sched_getaffinity:204:123", ""),
        "free-calls",
    ),
    "a higher limit, in the one table that sets it": (
        Edit("limits.py", "child_pending_signals: int = 64", "child_pending_signals: int = 65"),
        "outside-limits",
    ),
}


@pytest.mark.parametrize("what", sampled(LOSSES, "soft limits only".__eq__))
def test_what_is_wrong_with_a_confinement_is_noticed(what: str) -> None:
    edit, name = LOSSES[what]
    if what == "a device of the kernel's log" and not os.path.exists("/dev/kmsg"):
        edit = Edit(edit.file, edit.old, edit.new.replace("kmsg", "full"))
    found = notice(Switch(what, "", "0021", (edit,))).by

    assert f"'{name}'" in (found or "")

"""The filter of both machines, evaluated number by number as the kernel would, and its numbers checked.

What runs here is the program that is loaded, in an interpreter of some lines: so the filter of the machine
that we are not on is proved, too, and every answer for every number, not only for those that we can try.
"""

import errno
import re
from pathlib import Path

import pytest

from codegenie.eval.isolation.confinement import seccomp
from codegenie.eval.isolation.confinement.syscall_numbers import (
    ABSENT,
    CHECKED,
    EXECUTION,
    FREE,
    METADATA,
    OURS,
    numbers,
)
from tests.support.call_filters import ALLOW, ARCHITECTURES, ERROR, KILL, answer
from tests.support.system_calls import REFUSED, WELL_KNOWN

MACHINES = ("x86_64", "aarch64")
I386, ARM = 0x40000003, 0x40000028
EPERM, ENOSYS, EAGAIN = (ERROR | number for number in (errno.EPERM, errno.ENOSYS, errno.EAGAIN))
SELF = 0x5E1F5E1F
NEAR = (0x5E1F0001, 0x5E1F0002, 0x5E1F0003)
THREAD = 0x3D0F00  # what glibc passes for a thread
HEADERS = {
    "x86_64": ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"],
    "aarch64": ["/usr/include/asm-generic/unistd.h"],
}
RENAMED = {"newfstatat": "fstatat"}

each_machine = pytest.mark.parametrize("machine", MACHINES)
Allowed = dict[str, bool]
each_filter = pytest.mark.parametrize(
    "allowed",
    [
        {"metadata": metadata, "execution": execution}
        for execution in (False, True)
        for metadata in (True, False)
    ],
    ids=[
        "with-metadata",
        "without-metadata",
        "with-metadata-and-execution",
        "without-metadata-and-execution",
    ],
)


def test_numbers_are_those_of_a_second_list() -> None:
    ours = {
        entry
        for table in (FREE, METADATA, EXECUTION, CHECKED, ABSENT, OURS, REFUSED)
        for entry in table.split()
    }
    names = [entry.partition(":")[0] for entry in ours]

    assert set(WELL_KNOWN.split()) - ours == set()
    assert len(names) == len(set(names))
    for machine in MACHINES:
        tables = (FREE, METADATA, EXECUTION, CHECKED, ABSENT, REFUSED)
        found = [number for table in tables for number in numbers(table, machine).values()]
        assert len(found) == len(set(found))


def header_numbers(text: str) -> dict[str, int]:
    found = re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", text, re.MULTILINE)
    return {name: int(number) for name, number in found}


@each_machine
def test_numbers_are_those_of_the_headers_of_the_kernel_where_these_are_installed(machine: str) -> None:
    for header in (Path(path) for path in HEADERS[machine]):
        if header.exists():
            theirs = header_numbers(header.read_text(encoding="utf-8"))
            newest = max(theirs.values()) - 1
            for table in (FREE, METADATA, EXECUTION, CHECKED, ABSENT, OURS, WELL_KNOWN, REFUSED):
                for name, number in numbers(table, machine).items():
                    theirs_of_it = theirs.get(name, theirs.get(RENAMED.get(name, name)))
                    assert number > newest or theirs_of_it == number, name


@each_machine
@each_filter
def test_exactly_the_intended_calls_are_allowed(machine: str, allowed: Allowed) -> None:
    code = seccomp.program(machine, **allowed)
    tables = [
        FREE,
        *([METADATA] if allowed["metadata"] else ()),
        *([EXECUTION] if allowed["execution"] else ()),
    ]
    free = {number for table in tables for number in numbers(table, machine).values()}
    checked = set(numbers(CHECKED, machine).values())
    found = {number: answer(code, number, ARCHITECTURES[machine], [0x7FFFFFFF] * 6) for number in range(601)}

    # With arguments that no check knows, a checked call is refused like any other; but every limit is free
    # that is not that of cores, and so is every private futex.
    known = {numbers(CHECKED, machine)[name] for name in ("setrlimit", "futex")}
    assert {number for number, said in found.items() if said == ALLOW} == {*free, *known}
    assert all(found[number] == EPERM for number in checked - known)
    absent = {"x86_64": {435, 327, 328, 332}, "aarch64": {435, 286, 287, 291}}[machine]
    assert {number for number, said in found.items() if said == ENOSYS} == {*absent, *range(463, 601)}
    assert set(found.values()) == {ALLOW, EPERM, ENOSYS}


@each_machine
@each_filter
def test_a_call_of_another_architecture_ends_the_process(machine: str, allowed: Allowed) -> None:
    code = seccomp.program(machine, **allowed)
    for other in {*ARCHITECTURES.values(), I386, ARM, 0} - {ARCHITECTURES[machine]}:
        assert {answer(code, number, other) for number in range(601)} == {KILL}


@each_filter
def test_an_x32_number_ends_the_process(allowed: Allowed) -> None:
    code = seccomp.program("x86_64", **allowed)
    for number in (*range(0x40000000, 0x40000000 + 601), 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
        assert answer(code, number, ARCHITECTURES["x86_64"]) == KILL


# For each call that is checked: arguments that are allowed, and arguments that are not. The upper half of an
# int is not looked at by the kernel, and so neither by us.
ARGUMENTS: dict[str, tuple[list[list[int]], list[list[int]]]] = {
    "clone": (
        [[THREAD], [0x10F00], [THREAD | 0xFF << 32]],
        [[17], [0x4111], [0x8011], [0x11]]
        + [[THREAD & ~flag] for flag in (0x100, 0x200, 0x400, 0x800, 0x10000)]
        + [[THREAD | 1 << bit] for bit in (12, 13, 17, 25, 26, 27, 28, 29, 30)],
    ),
    "fcntl": (
        [[0, command] for command in (0, 1, 2, 3, 4, 1030, 1032)],
        [[0, command] for command in (*range(5, 40), 1024, 1025, 1026, 1031, 1033, 1034, 1 << 30)],
    ),
    "getsockopt": (
        [[0, 1, option] for option in (2, 3, 4, 7, 8, 9, 13, 20, 21, 30, 38, 39)] + [[0, 1 | 1 << 32, 3]],
        [[0, 1, option] for option in (0, 1, 10, 17, 26, 28, 31, 49, 55, 56, 57, 59, 71, 77, 80)]
        + [[0, level, 3] for level in (0, 2, 6, 17, 41, 255, 270)],
    ),
    # Not by a pool of the machine (0x40000), of whatever size the pages are.
    "mmap": (
        [[0, 4096, 3, flags] for flags in (0x2, 0x22, 0x32, 0x20022, 0x100000)]
        + [[half << 32 | place, 4096, 3, 0x32] for half in NEAR for place in (0, 4096, 0xFFFFF000)],
        [[0, 4096, 3, 0x40000 | flags] for flags in (0x22, 0x2, 21 << 26 | 0x22)],
    ),
    "mremap": ([[0, 1, 2, 0], [0, 1, 2, 1]], [[0, 1, 2, flags] for flags in (2, 3, 4, 5, 7)]),
    "madvise": (
        [[0, 0, advice] for advice in (0, 1, 2, 3, 4, 8, 14, 15)],
        [[0, 0, advice] for advice in (5, 9, *range(10, 14), *range(16, 27), 100, 101, 102, 103, 1 << 31)],
    ),
    "ioctl": (
        [[0, command] for command in (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)],
        [[0, command] for command in (0, 0x5402, 0x5404, 0x540E, 0x5412, 0x5414, 0x541C, 0x5423, 0x5452)],
    ),
    "kill": ([[SELF], [SELF, 9]], [[0], [1], [0xFFFFFFFF], [-SELF], [SELF + 1]]),
    "tgkill": ([[SELF, 5]], [[0], [1], [0xFFFFFFFF], [-SELF], [SELF - 1]]),
    "prctl": ([[16]], [[option] for option in (*range(16), *range(17, 80), 0x59616D61)]),
    "futex": ([[0, 128], [0, 129], [0, 128 | 9]], [[0, 0], [0, 1], [0, 9], [0, 256], [0, 128 << 32]]),
    "prlimit64": (
        # The limit of cores can be read, which is a call without a new limit, and not set.
        [[0, which, 1] for which in (0, 1, 2, 3, 5, 6, 7, 9, 15)] + [[1 << 32, 7], [0, 4, 0]],
        [[0, 4, 1], [0, 4, 1 << 32], [1, 7], [SELF, 7], [0xFFFFFFFF, 7], [0, 4 | 1 << 32, 1]],
    ),
    "setrlimit": ([[which] for which in (0, 1, 2, 3, 5, 6, 7, 9, 15)], [[4], [4 | 1 << 32]]),
    "sendto": ([[0] * 5], [[0, 0, 0, 0, pointer] for pointer in (1, 1 << 31, 1 << 32, 0x7FFF_0000_0000)]),
    "socketpair": (
        [[1, 1], [1, 1 | 0o4000 | 0o2000000]],
        [[1, kind] for kind in (0, 2, 3, 5, 9, 2 | 0o2000000)]
        + [[family, 1] for family in (0, 2, 10, 16, 17, 30, 40)],
    ),
}  # fmt: skip


@each_machine
@each_filter
def test_a_checked_call_is_free_for_the_intended_arguments_alone(machine: str, allowed: Allowed) -> None:
    code = seccomp.program(machine, **allowed)
    checked = numbers(CHECKED, machine)

    assert checked.keys() == ARGUMENTS.keys()
    for name, (good, bad) in ARGUMENTS.items():
        said = [answer(code, checked[name], ARCHITECTURES[machine], arguments) for arguments in (*good, *bad)]
        refused = EAGAIN if name == "futex" else EPERM
        assert said == [ALLOW] * len(good) + [refused] * len(bad), name


def test_no_metadata_call_is_free_where_landlock_is_the_only_wall() -> None:
    for machine in MACHINES:
        code = seccomp.program(machine, metadata=False, execution=False)
        for name, number in numbers(METADATA, machine).items():
            assert answer(code, number, ARCHITECTURES[machine]) == EPERM, name


@each_machine
def test_a_mapping_is_not_wished_for_far_from_the_others(machine: str) -> None:
    number = numbers(CHECKED, machine)["mmap"]
    far = [
        [half << 32 | place, 4096, 3, 0x32] for half in (0, 1, 0x100, 0x5E1F0004) for place in (4096, 1 << 31)
    ]
    said = {
        execution: {
            answer(
                seccomp.program(machine, metadata=True, execution=execution),
                number,
                ARCHITECTURES[machine],
                each,
            )
            for each in far
        }
        for execution in (True, False)
    }
    # Where a fresh interpreter is started it is not known where that will lie.
    assert said == {True: {ALLOW}, False: {EPERM}}


def test_no_other_program_is_started_where_no_fresh_interpreter_is() -> None:
    for machine in MACHINES:
        code = seccomp.program(machine, metadata=True, execution=False)
        assert answer(code, numbers(EXECUTION, machine)["execve"], ARCHITECTURES[machine]) == EPERM


@each_machine
@each_filter
def test_the_filter_fits_the_kernel(machine: str, allowed: Allowed) -> None:
    code = seccomp.program(machine, **allowed)
    assert len(code) <= 4096
    assert all(0 <= true <= 255 and 0 <= false <= 255 for _, true, false, _ in code)

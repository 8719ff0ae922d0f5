"""The filter of system calls: an allow-list, compiled once and loaded by every confined process.

A call that is not on the list fails with EPERM, an error that a program can report. A call of a foreign
architecture ends the process. The filter is a balanced tree of ranges. As a list of 160 comparisons it took
167 microseconds to load for every case, because the kernel tries the filter for each number.
"""

import ctypes
import errno
import mmap
import struct
from collections.abc import Mapping, Sequence

from codegenie.eval.isolation.confinement import syscalls
from codegenie.eval.isolation.confinement.syscall_numbers import (
    ABSENT,
    CHECKED,
    EXECUTION,
    FREE,
    LAST_KNOWN,
    METADATA,
    numbers,
)

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _MASK, _RETURN, _JUMP = 0x20, 0x15, 0x35, 0x54, 0x06, 0x05
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_ALLOW = 0x7FFF0000
_KILL_PROCESS = 0x80000000
_ERROR = 0x00050000
_EPERM = _ERROR | errno.EPERM
_ENOSYS = _ERROR | errno.ENOSYS
_EAGAIN = _ERROR | errno.EAGAIN
_SET_MODE_FILTER = 1
_AUDIT_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
# The distance of a conditional jump has eight bits; an unconditional jump has more.
_LONGEST_JUMP = 255

_AF_UNIX, _SOCK_STREAM, _SOCK_TYPE = 1, 1, 0xF
# Duplicates, flags and pipes. Not F_SETOWN and F_SETSIG, with which a file sends a signal of the caller's
# choice. No locks, and flock is not on the list either: cases that run at the same time read the same
# library, and two cases could signal each other through locks on its files.
_FREE_FCNTL = (0, 1, 2, 3, 4, 1030, 1032)
# For `isatty`, the size of a window and non-blocking sockets. Not TIOCSTI, which fakes input of the user.
_FREE_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
# PR_GET_NAME reads the name of a thread. Not PR_SET_NAME, whose text can appear in the kernel's log. Not
# PR_SET_PDEATHSIG: a process that clears it outlives its parent.
_FREE_PRCTL = (16,)
# Huge pages come from a pool that the whole machine shares, and no limit of a process counts them.
_MAP_HUGETLB = 0x40000
# MREMAP_FIXED and MREMAP_DONTUNMAP: a mapping at an address of the caller's choice.
_REMAP_ELSEWHERE = 0x6
# Placeholders for the upper halves of the addresses near those where the kernel puts mappings.
_NEIGHBOURHOOD = (0x5E1F0001, 0x5E1F0002, 0x5E1F0003)
# The advice that allocators give, and hints about reading. Not MADV_PAGEOUT and MADV_COLD: they push pages of
# the library out of memory, and the next case can measure that. Not MADV_MERGEABLE, which shares equal pages.
_FREE_MADVISE = (0, 1, 2, 3, 4, 8, 14, 15)
# Kind, error, sizes of buffers, times, protocol and family, as the socket module reads them. Not
# SO_PEERPIDFD and SO_COOKIE: both return a number that counts for the whole machine.
_SOL_SOCKET, _FREE_GETSOCKOPT = 1, (2, 3, 4, 7, 8, 9, 13, 20, 21, 30, 38, 39)
# VM, FS, FILES, SIGHAND and THREAD make a thread. With fewer of these flags clone makes a process.
_THREAD_FLAGS = 0x00010F00
# Flags that a thread must not have: those of namespaces, PTRACE and PIDFD.
_FOREIGN_FLAGS = 0x7E020000 | 0x00002000 | 0x00001000
# Placeholder for the number of the process that loads the filter.
_SELF = 0x5E1F5E1F
_RLIMIT_CORE = 4
_FUTEX_PRIVATE = 128

Instruction = tuple[int, int, int, int]
Code = list[Instruction]


def _returns(action: int) -> Code:
    return [(_RETURN, 0, 0, action)]


def _argument(index: int) -> Instruction:
    # The lower half on a little-endian machine. These arguments are ints, and the kernel ignores the rest.
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * index)


def _null(index: int, otherwise: Code) -> Code:
    """Continue after this code if the argument is a null pointer; both of its halves are compared."""
    upper = (_LOAD, 0, 0, _ARGUMENTS + 8 * index + 4)
    test: Code = [
        _argument(index),
        (_JUMP_EQUAL, 0, 2, 0),  # the lower half is not 0: skip two instructions, to `otherwise`
        upper,
        (_JUMP_EQUAL, len(otherwise), 0, 0),  # the upper half is 0 too: skip `otherwise`
    ]
    return [*test, *otherwise]


def _one_of(index: int, values: Sequence[int]) -> Code:
    """Allow a call whose argument is one of these values."""
    code: Code = [_argument(index)]
    for position, value in enumerate(values):
        # Equal: skip the comparisons that are left and the refusal, to the last instruction.
        code.append((_JUMP_EQUAL, len(values) - position, 0, value))
    return [*code, *_returns(_EPERM), *_returns(_ALLOW)]


def _masked(index: int, mask: int, value: int, otherwise: Code) -> Code:
    """Continue after this code if the bits under the mask are equal to the value."""
    test: Code = [_argument(index), (_MASK, 0, 0, mask), (_JUMP_EQUAL, len(otherwise), 0, value)]
    return [*test, *otherwise]


def _unless(index: int, value: int, otherwise: Code) -> Code:
    """Continue after this code if the argument differs from the value."""
    return [_argument(index), (_JUMP_EQUAL, 0, len(otherwise), value), *otherwise]


def _near_or_anywhere() -> Code:
    """Allow a mapping near the existing ones, or one without a wished address.

    A page that is far from all others needs page tables of its own, and no limit of memory counts these:
    64,000 pages far from each other took 512 MiB of tables (measured). Within 12 GiB 24 MiB is the most.
    """
    upper = (_LOAD, 0, 0, _ARGUMENTS + 4)
    # Equal: skip the other comparisons, the three instructions of `nowhere` and the refusal. For the first of
    # the three these are 2 + 3 + 1 instructions, and one less for each that follows.
    near: Code = [(_JUMP_EQUAL, 6 - position, 0, half) for position, half in enumerate(_NEIGHBOURHOOD)]
    # Without a wish both halves of the address are 0.
    nowhere: Code = [
        (_JUMP_EQUAL, 0, 2, 0),  # the upper half is not 0: skip two instructions, to the refusal
        _argument(0),
        (_JUMP_EQUAL, 1, 0, 0),  # the lower half is 0 too: skip the refusal
    ]
    return [upper, *near, *nowhere, *_returns(_EPERM), *_returns(_ALLOW)]


def _checks(*, execution: bool) -> dict[str, Code]:
    """Return the code for every call that is allowed for some arguments only.

    With `execution` the address of a mapping is not checked: where a fresh interpreter will lie in memory is
    not known when the filter is loaded.
    """
    no, yes = _returns(_EPERM), _returns(_ALLOW)
    return {
        # A datagram socket could send to any named socket, whatever its other end is.
        "socketpair": [
            *_masked(0, 0xFFFFFFFF, _AF_UNIX, no),
            *_masked(1, _SOCK_TYPE, _SOCK_STREAM, no),
            *yes,
        ],
        "sendto": [*_null(4, no), *yes],
        "getsockopt": [*_masked(1, 0xFFFFFFFF, _SOL_SOCKET, no), *_one_of(2, _FREE_GETSOCKOPT)],
        "mmap": [*_masked(3, _MAP_HUGETLB, 0, no), *(yes if execution else _near_or_anywhere())],
        "mremap": [*_masked(3, _REMAP_ELSEWHERE, 0, no), *yes],
        "madvise": _one_of(2, _FREE_MADVISE),
        "fcntl": _one_of(1, _FREE_FCNTL),
        # A futex that is not private is identified by a page of a file, and all cases share the pages of the
        # library. Not EPERM: glibc ends the process after EPERM, and tries again after EAGAIN.
        "futex": [*_masked(1, _FUTEX_PRIVATE, _FUTEX_PRIVATE, _returns(_EAGAIN)), *yes],
        "ioctl": _one_of(1, _FREE_IOCTL),
        "prctl": _one_of(0, _FREE_PRCTL),
        # A core collector obeys a limit of one byte, and ignores a limit of 0.
        "prlimit64": [*_masked(0, 0xFFFFFFFF, 0, no), *_unless(1, _RLIMIT_CORE, _null(2, no)), *yes],
        "setrlimit": [*_unless(0, _RLIMIT_CORE, no), *yes],
        "kill": _one_of(0, (_SELF,)),
        "tgkill": _one_of(0, (_SELF,)),
        "clone": [*_masked(0, _THREAD_FLAGS, _THREAD_FLAGS, no), *_masked(0, _FOREIGN_FLAGS, 0, no), *yes],
    }


def _ranges(machine: str, allowed: Sequence[str]) -> list[tuple[int, Code]]:
    """Return, in order of call numbers, each number where the answer changes, and the new answer."""
    checks = _checks(execution=EXECUTION in allowed)
    answers = {number: _returns(_ALLOW) for table in allowed for number in numbers(table, machine).values()}
    answers |= {number: checks[name] for name, number in numbers(CHECKED, machine).items()}
    answers |= dict.fromkeys(numbers(ABSENT, machine).values(), _returns(_ENOSYS))
    refused = _returns(_EPERM)
    return _ranged(answers, refused)


def _ranged(answers: Mapping[int, Code], otherwise: Code) -> list[tuple[int, Code]]:
    found: list[tuple[int, Code]] = []
    for number in range(LAST_KNOWN + 1):
        answer = answers.get(number, otherwise)
        if not found or found[-1][1] != answer:
            found.append((number, answer))
    return [*found, (LAST_KNOWN + 1, _returns(_ENOSYS))]


def _tree(ranges: Sequence[tuple[int, Code]]) -> Code:
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    lower, upper = _tree(ranges[:middle]), _tree(ranges[middle:])
    if len(lower) > _LONGEST_JUMP:
        return [
            (_JUMP_AT_LEAST, 0, 1, ranges[middle][0]),
            (_JUMP, 0, 0, len(lower)),
            *lower,
            *upper,
        ]
    return [(_JUMP_AT_LEAST, len(lower), 0, ranges[middle][0]), *lower, *upper]


def program(machine: str, *, metadata: bool, execution: bool) -> Code:
    """Return the filter for a machine.

    `metadata` allows changes of modes and times, `execution` allows the start of another program.
    """
    allowed = [FREE, *([METADATA] if metadata else ()), *([EXECUTION] if execution else ())]
    return _headed(machine, _ranges(machine, allowed), _returns(_KILL_PROCESS))


def program_of(machine: str, answers: Mapping[int, Code], otherwise: Code) -> Code:
    """Return a filter that gives these answers by call number, and `otherwise` for the other known calls.

    To calls that are newer than the list, and to those of a foreign architecture, it answers ENOSYS.
    """
    return _headed(machine, _ranged(answers, otherwise), _returns(_ENOSYS))


def _headed(machine: str, ranges: Sequence[tuple[int, Code]], foreign: Code) -> Code:
    """Put the checks of the architecture before the tree."""
    head: Code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, _AUDIT_ARCHITECTURE[machine]),
        *foreign,
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        head += [(_JUMP_AT_LEAST, 0, 1, _X32), *foreign]
    return [*head, *_tree(ranges)]


# The parts from which other filters are put together.
returns, masked = _returns, _masked
ALLOW = _ALLOW


def refuses(number: int) -> Code:
    """Return the code that lets a call fail with this error."""
    return _returns(_ERROR | number)


class _FilterProgram(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


def _place_of_mappings() -> int:
    """Return an address where the kernel puts a mapping now: each new one lies just below the others."""
    with mmap.mmap(-1, mmap.PAGESIZE) as page:
        return ctypes.addressof(ctypes.c_char.from_buffer(page))


class LoadableFilter:
    """A filter in the kernel's form; made once, loaded by any number of copies of this process."""

    def __init__(self, code: Code) -> None:
        raw = b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
        self._raw = ctypes.create_string_buffer(raw, len(raw))
        # The offsets of the process number, which is not known before the process exists.
        self._own_number = [index * 8 + 4 for index, each in enumerate(code) if each[3] == _SELF]
        self._program = _FilterProgram(len(code), ctypes.addressof(self._raw))

    def load(self, own_number: int) -> None:
        """Load the filter, which stays until this process ends. The process may then signal only itself."""
        for place in self._own_number:
            struct.pack_into("=I", self._raw, place, own_number)
        syscalls.call("seccomp", _SET_MODE_FILTER, 0, ctypes.byref(self._program))


class CallFilter(LoadableFilter):
    """The filter of a rubric, for this machine and for the place in memory where this process lies."""

    def __init__(self, *, metadata: bool, execution: bool) -> None:
        code = program(syscalls.MACHINE, metadata=metadata, execution=execution)
        here = _place_of_mappings() >> 32
        halves = dict(zip(_NEIGHBOURHOOD, (here - 1, here, here + 1), strict=True))
        super().__init__([(*each[:3], halves.get(each[3], each[3])) for each in code])

"""Runs a command where namespaces are denied, as by the filter of most containers.

A program of its own: `python without_namespaces.py [--nor-landlock] COMMAND…`.
"""

import ctypes
import errno
import os
import struct
import sys

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_ANY_NAMESPACE = 0x7E020000
# unshare, mount, setns, pivot_root; then clone, whose flags are looked at, and clone3, whose flags cannot be.
_DENIED = {"x86_64": (272, 165, 308, 155), "aarch64": (97, 40, 268, 41)}
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435
_LANDLOCK_CREATE_RULESET = 444


def _program(machine: str, *more: int) -> bytes:
    code = [(_LOAD, 0, 0, 0)]
    for number in (*_DENIED[machine], *more):
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE | errno.EPERM)]
    code += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _REFUSE | errno.ENOSYS)]
    # The flags are the first argument on both machines.
    code += [(_EQUAL, 0, 3, _CLONE[machine]), (_LOAD, 0, 0, 16), (_ANY_BIT, 0, 1, _ANY_NAMESPACE)]
    code += [(_RETURN, 0, 0, _REFUSE | errno.EPERM), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *each) for each in code)


def deny_namespaces(*more: int) -> None:
    """Bind this process, and all that it starts, to the filter."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = _program(os.uname().machine, *more)
    raw = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(raw))
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.c_char_p(program), 0, 0):
        raise OSError(ctypes.get_errno(), "the filter was not taken")


if __name__ == "__main__":
    command = sys.argv[1:]
    if command[0] == "--nor-landlock":
        deny_namespaces(_LANDLOCK_CREATE_RULESET)
        command.pop(0)
    else:
        deny_namespaces()
    os.execvp(command[0], command)  # noqa: S606 - what it is for

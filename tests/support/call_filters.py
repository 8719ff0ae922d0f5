"""Runs a filter of system calls as the kernel would, for every number and for both machines."""

from collections.abc import Sequence

from codegenie.eval.isolation.confinement.seccomp import Code

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000


def answer(code: Code, number: int, architecture: int, arguments: Sequence[int] = ()) -> int:
    """Run a filter on one call, as the kernel does; a jump out of the program is an error."""
    words = [number & 0xFFFFFFFF, architecture, 0, 0]
    for argument in [*arguments, *[0] * (6 - len(arguments))]:
        words += [argument & 0xFFFFFFFF, argument >> 32 & 0xFFFFFFFF]
    at = value = 0
    for _ in range(len(code)):
        operation, true, false, operand = code[at]
        at += 1
        if operation == 0x20:
            value = words[operand // 4]
        elif operation == 0x54:
            value &= operand
        elif operation == 0x05:
            at += operand
        elif operation in {0x15, 0x35}:
            at += true if (value == operand if operation == 0x15 else value >= operand) else false
        elif operation == 0x06:
            return operand
        else:
            raise AssertionError(f"no such operation: {operation:#x}")
    raise AssertionError("no end")

"""What a program below the harness does to itself first, because every process below it inherits it."""

import os
import resource
import signal

from codegenie.eval.isolation.confinement import syscalls

_SIGNALS_OF_THE_C_LIBRARY, _BYTES_OF_A_SET = (32, 33), 8


def forget_inherited_signals() -> None:
    """Reset the signals that the harness's parent ignored or blocked: every rubric would inherit them."""
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) is signal.SIG_IGN:
            again = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, again)
    for own in _SIGNALS_OF_THE_C_LIBRARY:
        # The C library's own functions refuse to change these two. They are ignored in a program that was
        # started by posix_spawn, as make starts all its programs. 32 zero bytes describe the default handler.
        syscalls.call("rt_sigaction", own, bytes(32), None, _BYTES_OF_A_SET)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def hide() -> None:
    """Hide our memory from other programs of the user and from core dumps; our children inherit both.

    A core collector that listens on a socket ignores the limit of size. With no kind of memory in the core it
    received 53 KB of registers and notes, and no data of the program (measured on Linux 6.18).
    """
    # This comes first: once the process is hidden, the file belongs to root.
    descriptor = os.open("/proc/self/coredump_filter", os.O_WRONLY | os.O_CLOEXEC)
    os.write(descriptor, b"0")
    os.close(descriptor)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)


def leave_room(most_tasks: int | None) -> None:
    """Start no process once the user has this many, and allow no namespace of ours more than this."""
    if most_tasks is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        resource.setrlimit(resource.RLIMIT_NPROC, (most_tasks, hard))

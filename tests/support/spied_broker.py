"""Starts a broker and prints what another program of the same user can open of it, and of a control.

It is run as an ordinary user (`ordinary_user`): where tests run as root, the powers of root hide a process
from a program without them, whether it is undumpable or not.
"""

import asyncio
import ctypes
import json
import os
import signal
import subprocess
import sys

from codegenie.eval.broker import client
from codegenie.eval.broker.client import Broker
from codegenie.eval.system.processes import real_interpreter
from codegenie.eval.system.supervisor_pool import start_program
from tests.support.broker_lines import KEY, rules

_PTRACE_SEIZE = 0x4206  # it stops nothing
_FILES = ("environ", "mem", "maps", "auxv", "fd/1")


def opened(pid: int) -> list[str]:
    """Return what this process can open of another one."""
    found = []
    for name in _FILES:
        try:
            os.close(os.open(f"/proc/{pid}/{name}", os.O_RDONLY))
        except OSError:
            continue
        found.append(name)
    # It is allowed or not by the same rule as process_vm_readv.
    if ctypes.CDLL(None).ptrace(_PTRACE_SEIZE, pid, 0, 0) == 0:
        found.append("ptrace")
    return found


async def of_a_broker_with_a_key() -> list[str]:
    broker = await Broker.start(rules("http://127.0.0.1:9"), KEY)
    try:
        return opened(broker._process.pid)  # noqa: SLF001 - seen from outside
    finally:
        await broker.close()


def of_a_broker_before_its_key() -> list[str]:
    argv = [real_interpreter(), "-I", "-S", "-B", str(client._PROGRAM)]  # noqa: SLF001 - the program itself
    process, connection = start_program(argv, {})
    with connection:
        assert json.loads(connection.recv(1000)) == {"ready": True}
        found = opened(process.pid)
    process.wait()
    return found


def of_a_control() -> list[str]:
    with subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL) as control:
        found = opened(control.pid)
        control.send_signal(signal.SIGKILL)
    return found


def main() -> None:
    found = {
        "with its key": asyncio.run(of_a_broker_with_a_key()),
        "before its key": of_a_broker_before_its_key(),
        "a control": of_a_control(),
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()

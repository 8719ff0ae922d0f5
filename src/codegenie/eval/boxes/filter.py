"""The filter of system calls in a box: a deny-list, because agents are programs of every kind.

What is denied reaches the kernel's own parts, other users or the machine. Processes may look into each other:
debuggers are tools, and a pid namespace or Landlock keeps the others out of reach.
"""

import errno
from functools import cache

from codegenie.eval.boxes.request import Network
from codegenie.eval.isolation.confinement.seccomp import (
    ALLOW,
    Code,
    LoadableFilter,
    masked,
    program_of,
    refuses,
    returns,
)
from codegenie.eval.isolation.confinement.syscall_numbers import numbers

# name:x86_64:aarch64, a dash where the architecture has no such call.
DENIED = """
    _sysctl:156:- acct:163:89 add_key:248:217 adjtimex:159:171 bpf:321:280 chroot:161:51 clock_adjtime:305:266
    clock_settime:227:112 create_module:174:- delete_module:176:106 fanotify_init:300:262
    fanotify_mark:301:263 finit_module:313:273 fsconfig:431:431 fsmount:432:432 fsopen:430:430 fspick:433:433
    get_kernel_syms:177:- init_module:175:105 ioperm:173:- iopl:172:- kexec_file_load:320:294
    kexec_load:246:104 keyctl:250:219 listmount:458:458 lookup_dcookie:212:18 mbind:237:235
    memfd_secret:447:447 migrate_pages:256:238 mount:165:40 mount_setattr:442:442 move_mount:429:429
    move_pages:279:239 nfsservctl:180:42 open_by_handle_at:304:265 open_tree:428:428 perf_event_open:298:241
    pivot_root:155:41 query_module:178:- quotactl:179:60 quotactl_fd:443:443 reboot:169:142
    request_key:249:218 setdomainname:171:162 sethostname:170:161 setns:308:268 settimeofday:164:170
    statmount:457:457 swapoff:168:225 swapon:167:224 syslog:103:116 umount2:166:39 uselib:134:-
    userfaultfd:323:282 vhangup:153:58 vmsplice:278:75
"""
"""Calls that fail with EPERM."""

ABSENT = """
    clone3:435:435 io_uring_enter:426:426 io_uring_register:427:427 io_uring_setup:425:425
"""
"""Calls that the filter answers as if the kernel did not have them: programs then use another call.

The arguments of clone3 lie behind a pointer, which a filter cannot read, and io_uring makes calls that no
filter sees.
"""

OF_THE_HOST = """
    mq_getsetattr:245:185 mq_notify:244:184 mq_open:240:180 mq_timedreceive:243:183 mq_timedsend:242:182
    mq_unlink:241:181 msgctl:71:187 msgget:68:186 msgrcv:70:188 msgsnd:69:189 pidfd_getfd:438:438
    semctl:66:191 semget:64:190 semop:65:193 semtimedop:220:192 shmat:30:196 shmctl:31:195 shmdt:67:197
    shmget:29:194
"""
"""Calls that fail with EPERM where a box has no namespaces: what they make stays on the host."""

CHECKED = """
    clone:56:220 ioctl:16:29 socket:41:198 socketpair:53:199 unshare:272:97
"""
"""Calls that are allowed for some arguments only."""

ON_ONESELF = """
    ioprio_set:251:30 prlimit64:302:261 sched_setaffinity:203:122 sched_setattr:314:274
    sched_setparam:142:118 sched_setscheduler:144:119 setpriority:141:140
"""
"""Calls that change another process of the same user.

Without namespaces they are allowed only if the caller means itself: process number 0. In a namespace they
must not mean the first process, which has the same user: it watches the box, and if it ends, the attempt is
void.
"""

SENDING = """
    sendmmsg:307:269 sendmsg:46:211 sendto:44:206
"""
"""Calls that can open a connection by a flag. Landlock checks `connect` only."""

_NEW_NAMESPACES = 0x7E020000
# Only `unshare` knows it: for `clone` this bit belongs to a signal.
_NEW_TIME = 0x80
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _SEQPACKET, _KIND_OF_SOCKET = 1, 5, 0xF
_ROUTE = 0
_DEFAULT_PROTOCOL, _TCP = 0, 6
_FAST_OPEN = 0x20000000
_WHOLE = 0xFFFFFFFF
# The argument that holds the flags.
_FLAGS_OF = {"sendto": 3, "sendmsg": 2, "sendmmsg": 3}
# These two say first whether they mean a process, a group or a user: the value for a process.
_A_PROCESS = {"setpriority": 0, "ioprio_set": 1}
_ALL_OF_A_USER = {"setpriority": 2, "ioprio_set": 3}
_FIRST_PROCESS = 1

_NO, _YES = refuses(errno.EPERM), returns(ALLOW)


def _if_equal(index: int, value: int, then: Code) -> Code:
    """Answer with `then` if the argument has this value, and continue after this code otherwise."""
    # `masked` skips its last part on equality, and so this needs a step over `then`.
    load, mask, (jump, _, _, compared) = masked(index, _WHOLE, value, [])
    return [load, mask, (jump, 0, len(then), compared), *then]


def _any_of(index: int, values: tuple[int, ...], then: Code, otherwise: Code) -> Code:
    return [*(step for value in values for step in _if_equal(index, value, then)), *otherwise]


def _families(*, namespaces: bool, network: Network) -> Code:
    """Answer `socket`. AF_VSOCK for example is bound to no namespace, so families are an allow-list."""
    unknown = refuses(errno.EAFNOSUPPORT)
    route = [*masked(2, _WHOLE, _ROUTE, unknown), *_YES]
    if namespaces:
        return [
            *_any_of(0, (_UNIX, _INET, _INET6), _YES, []),
            *_if_equal(0, _NETLINK, route),
            *unknown,
        ]
    if network == "host":
        return [*_any_of(0, (_INET, _INET6), _YES, []), *_if_equal(0, _NETLINK, route), *unknown]
    if network == "none":
        return unknown
    # Landlock knows the ports of TCP, and nothing of other protocols over such a socket.
    tcp = [
        *masked(1, _KIND_OF_SOCKET, _STREAM, unknown),
        *_any_of(2, (_DEFAULT_PROTOCOL, _TCP), _YES, unknown),
    ]
    return [*_if_equal(0, _INET, tcp), *_if_equal(0, _INET6, tcp), *unknown]


def _on_another_than_the_first(name: str) -> Code:
    """Answer a call that names a process, or first says whether it names a process, a group or a user."""
    if name not in _ALL_OF_A_USER:
        return _any_of(0, (_FIRST_PROCESS,), _NO, _YES)
    return [*_if_equal(0, _ALL_OF_A_USER[name], _NO), *_any_of(1, (_FIRST_PROCESS,), _NO, _YES)]


def _checks(*, namespaces: bool, network: Network) -> dict[str, Code]:
    unknown = refuses(errno.EAFNOSUPPORT)
    # Without namespaces, a datagram socket could send to any named socket of the host.
    kinds = [*masked(1, _KIND_OF_SOCKET, _STREAM, masked(1, _KIND_OF_SOCKET, _SEQPACKET, unknown)), *_YES]
    checks = {
        "clone": [*masked(0, _NEW_NAMESPACES, 0, _NO), *_YES],
        "unshare": [*masked(0, _NEW_NAMESPACES | _NEW_TIME, 0, _NO), *_YES],
        "ioctl": _any_of(1, (_TIOCSTI, _TIOCLINUX), _NO, _YES),
        "socket": _families(namespaces=namespaces, network=network),
        "socketpair": [*masked(0, _WHOLE, _UNIX, unknown), *(_YES if namespaces else kinds)],
    }
    if namespaces:
        return checks | {name: _on_another_than_the_first(name) for name in numbers(ON_ONESELF, "x86_64")}
    for name in numbers(ON_ONESELF, "x86_64"):
        kind = masked(0, _WHOLE, _A_PROCESS[name], _NO) if name in _A_PROCESS else []
        checks[name] = [*kind, *masked(1 if kind else 0, _WHOLE, 0, _NO), *_YES]
    for name, index in _FLAGS_OF.items():
        checks[name] = [*masked(index, _FAST_OPEN, 0, _NO), *_YES]
    return checks


def program(machine: str, *, namespaces: bool, network: Network) -> Code:
    """Return the filter of a box for a machine."""
    denied = DENIED if namespaces else DENIED + OF_THE_HOST
    checked = CHECKED + ON_ONESELF if namespaces else CHECKED + ON_ONESELF + SENDING
    checks = _checks(namespaces=namespaces, network=network)
    answers = dict.fromkeys(numbers(denied, machine).values(), _NO)
    answers |= dict.fromkeys(numbers(ABSENT, machine).values(), refuses(errno.ENOSYS))
    answers |= {number: checks[name] for name, number in numbers(checked, machine).items()}
    return program_of(machine, answers, _YES)


@cache
def call_filter(machine: str, *, namespaces: bool, network: Network) -> LoadableFilter:
    """Return the filter in the kernel's form. It is made once, and every copy of the process has it."""
    return LoadableFilter(program(machine, namespaces=namespaces, network=network))

"""The system calls that the confinement knows, by name, with their numbers on x86_64 and aarch64.

The kernel never changes a number. A test compares these with the headers of the kernel. The probes compare
them with the kernel itself wherever the harness runs: they fail if a number is wrong.
"""

# name:x86_64:aarch64, a dash where the architecture has no such call.
FREE = """
    access:21:- alarm:37:- arch_prctl:158:- brk:12:214 capget:125:90 chdir:80:49 clock_getres:229:114
    clock_gettime:228:113 clock_nanosleep:230:115 close:3:57 close_range:436:436 copy_file_range:326:285
    creat:85:- dup:32:23 dup2:33:- dup3:292:24 epoll_create:213:- epoll_create1:291:20 epoll_ctl:233:21
    epoll_pwait:281:22 epoll_pwait2:441:441 epoll_wait:232:- eventfd:284:- eventfd2:290:19
    exit:60:93 exit_group:231:94 faccessat:269:48 faccessat2:439:439 fallocate:285:47
    fchdir:81:50 fdatasync:75:83 fstat:5:80 fsync:74:82 ftruncate:77:46
    get_robust_list:274:100 getcpu:309:168 getcwd:79:17 getdents:78:- getdents64:217:61
    getegid:108:177 geteuid:107:175 getgid:104:176 getgroups:115:158 getitimer:36:102 getpeername:52:205
    getpgid:121:155 getpgrp:111:- getpid:39:172 getppid:110:173 getpriority:140:141 getrandom:318:278
    getresgid:120:150 getresuid:118:148 getrlimit:97:163 getrusage:98:165 getsid:124:156
    getsockname:51:204 gettid:186:178 gettimeofday:96:169 getuid:102:174 link:86:-
    linkat:265:37 lseek:8:62 lstat:6:- membarrier:324:283 mkdir:83:- mkdirat:258:34
    mprotect:10:226 msync:26:227 munmap:11:215 nanosleep:35:101
    newfstatat:262:79 open:2:- openat:257:56 pause:34:- pipe:22:- pipe2:293:59 poll:7:- ppoll:271:73
    pread64:17:67 preadv:295:69 pselect6:270:72 pwrite64:18:68 pwritev:296:70
    read:0:63 readahead:187:213 readlink:89:- readlinkat:267:78 readv:19:65
    recvfrom:45:207 recvmsg:47:212 rename:82:- renameat:264:38 renameat2:316:276 restart_syscall:219:128
    rmdir:84:- rseq:334:293 rt_sigaction:13:134 rt_sigpending:127:136 rt_sigprocmask:14:135
    rt_sigreturn:15:139 rt_sigsuspend:130:133 rt_sigtimedwait:128:137 sched_get_priority_max:146:125
    sched_get_priority_min:147:126 sched_getaffinity:204:123 sched_getparam:143:121
    sched_getscheduler:145:120 sched_yield:24:124 select:23:- sendfile:40:71
    set_robust_list:273:99 set_tid_address:218:96 setitimer:38:103 shutdown:48:210
    sigaltstack:131:132 signalfd4:289:74 splice:275:76 stat:4:- symlink:88:-
    symlinkat:266:36 time:201:- timerfd_create:283:85 timerfd_gettime:287:87
    timerfd_settime:286:86 times:100:153 truncate:76:45 umask:95:166 uname:63:160 unlink:87:-
    unlinkat:263:35 wait4:61:260 waitid:247:95 write:1:64 writev:20:66
"""
"""Calls that affect only the caller, or files that Landlock decides about."""

METADATA = """
    chmod:90:- fchmod:91:52 fchmodat:268:53 futimesat:261:- utime:132:- utimensat:280:88 utimes:235:-
"""
"""Calls that change modes and times. Landlock does not control them, so they are allowed only if all other
files are read-only."""

CHECKED = """
    clone:56:220 fcntl:72:25 futex:202:98 getsockopt:55:209 ioctl:16:29 kill:62:129 madvise:28:233
    mmap:9:222 mremap:25:216 prctl:157:167 prlimit64:302:261 sendto:44:206 setrlimit:160:164
    socketpair:53:199 tgkill:234:131
"""
"""Calls that are allowed for some arguments only."""

EXECUTION = """
    execve:59:221
"""
"""The call that starts a fresh interpreter, allowed only with `--spawn cold`.

A copy of a zygote needs no other program. With this call it could choose the name of its process by a link,
which the kernel writes into its log, and start any program that it can read through the loader `ld.so`.
"""

OURS = """
    capset:126:91 landlock_add_rule:445:445 landlock_create_ruleset:444:444
    landlock_restrict_self:446:446 mount:165:40 mount_setattr:442:442 pivot_root:155:41 seccomp:317:277
    setdomainname:171:162 sethostname:170:161 umount2:166:39 unshare:272:97
"""
"""Calls that set up the confinement."""

ABSENT = """
    clone3:435:435 preadv2:327:286 pwritev2:328:287 statx:332:291
"""
"""Calls that the filter answers as if the kernel did not have them: glibc then uses another call.

The arguments of clone3 are behind a pointer, which a filter cannot read. With a flag, preadv2 and pwritev2
reveal which pages of a file are in memory. statx reveals the number of a mount, which counts all mounts of
the machine.
"""

LAST_KNOWN = 462
"""Calls with a higher number are newer than this list. The filter answers as if they did not exist."""


def numbers(table: str, machine: str) -> dict[str, int]:
    """Return the calls of a table by name, as far as the machine has them."""
    column = {"x86_64": 1, "aarch64": 2}[machine]
    rows = (entry.split(":") for entry in table.split())
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}

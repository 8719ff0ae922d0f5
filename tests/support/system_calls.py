"""System calls by number, written down apart from those that the confinement uses: a second opinion."""

# name:x86_64:aarch64, as in the source.
REFUSED = """
    fadvise64:221:223 flock:73:32 fstatfs:138:44 sendmsg:46:211 statfs:137:43 sysinfo:99:179
    _sysctl:156:- accept:43:202 accept4:288:242 acct:163:89 add_key:248:217 adjtimex:159:171
    afs_syscall:183:- bind:49:200 bpf:321:280 cachestat:451:451 capset:126:91 chown:92:- chroot:161:51
    clock_adjtime:305:266 clock_settime:227:112 connect:42:203 create_module:174:- delete_module:176:106
    epoll_ctl_old:214:- epoll_wait_old:215:- execveat:322:281 fanotify_init:300:262 fanotify_mark:301:263
    fchmodat2:452:452 fchown:93:55 fchownat:260:54 fgetxattr:193:10 finit_module:313:273 flistxattr:196:13
    fork:57:- fremovexattr:199:16 fsconfig:431:431 fsetxattr:190:7 fsmount:432:432 fsopen:430:430
    fspick:433:433 futex_requeue:456:456 futex_wait:455:455 futex_waitv:449:449 futex_wake:454:454
    get_kernel_syms:177:- get_mempolicy:239:236 get_thread_area:211:- getpmsg:181:- getxattr:191:8
    init_module:175:105 inotify_add_watch:254:27 inotify_init:253:- inotify_init1:294:26
    inotify_rm_watch:255:28 io_cancel:210:3 io_destroy:207:1 io_getevents:208:4 io_pgetevents:333:292
    io_setup:206:0 io_submit:209:2 io_uring_enter:426:426 io_uring_register:427:427 io_uring_setup:425:425
    ioperm:173:- iopl:172:- ioprio_get:252:31 ioprio_set:251:30 kcmp:312:272 kexec_file_load:320:294
    kexec_load:246:104 keyctl:250:219 landlock_add_rule:445:445 landlock_create_ruleset:444:444
    landlock_restrict_self:446:446 lchown:94:- lgetxattr:192:9 listen:50:201 listmount:458:458
    listxattr:194:11 llistxattr:195:12 lookup_dcookie:212:18 lremovexattr:198:15 lsetxattr:189:6
    lsm_get_self_attr:459:459 lsm_list_modules:461:461 lsm_set_self_attr:460:460 map_shadow_stack:453:453
    mbind:237:235 memfd_create:319:279 memfd_secret:447:447 migrate_pages:256:238 mincore:27:232 mknod:133:-
    mknodat:259:33 mlock:149:228 mlock2:325:284 mlockall:151:230 modify_ldt:154:- mount:165:40
    mount_setattr:442:442 move_mount:429:429 move_pages:279:239 mq_getsetattr:245:185 mq_notify:244:184
    mq_open:240:180 mq_timedreceive:243:183 mq_timedsend:242:182 mq_unlink:241:181 mseal:462:462
    msgctl:71:187 msgget:68:186 msgrcv:70:188 msgsnd:69:189 munlock:150:229 munlockall:152:231
    name_to_handle_at:303:264 nfsservctl:180:42 open_by_handle_at:304:265 open_tree:428:428 openat2:437:437
    perf_event_open:298:241 personality:135:92 pidfd_getfd:438:438 pidfd_open:434:434
    pidfd_send_signal:424:424 pivot_root:155:41 pkey_alloc:330:289 pkey_free:331:290 pkey_mprotect:329:288
    process_madvise:440:440 process_mrelease:448:448 process_vm_readv:310:270 process_vm_writev:311:271
    ptrace:101:117 putpmsg:182:- query_module:178:- quotactl:179:60 quotactl_fd:443:443 reboot:169:142
    recvmmsg:299:243 remap_file_pages:216:234 removexattr:197:14 request_key:249:218 rt_sigqueueinfo:129:138
    rt_tgsigqueueinfo:297:240 sched_getattr:315:275 sched_rr_get_interval:148:127 sched_setaffinity:203:122
    sched_setattr:314:274 sched_setparam:142:118 sched_setscheduler:144:119 seccomp:317:277 security:185:-
    semctl:66:191 semget:64:190 semop:65:193 semtimedop:220:192 sendmmsg:307:269 set_mempolicy:238:237
    set_mempolicy_home_node:450:450 set_thread_area:205:- setdomainname:171:162 setfsgid:123:152
    setfsuid:122:151 setgid:106:144 setgroups:116:159 sethostname:170:161 setns:308:268 setpgid:109:154
    setpriority:141:140 setregid:114:143 setresgid:119:149 setresuid:117:147 setreuid:113:145 setsid:112:157
    setsockopt:54:208 settimeofday:164:170 setuid:105:146 setxattr:188:5 shmat:30:196 shmctl:31:195
    shmdt:67:197 shmget:29:194 signalfd:282:- socket:41:198 statmount:457:457 swapoff:168:225 swapon:167:224
    sync:162:81 sync_file_range:277:84 syncfs:306:267 sysfs:139:- syslog:103:116 tee:276:77
    timer_create:222:107 timer_delete:226:111 timer_getoverrun:225:109 timer_gettime:224:108
    timer_settime:223:110 tkill:200:130 tuxcall:184:- umount2:166:39 unshare:272:97 uselib:134:-
    userfaultfd:323:282 ustat:136:- vfork:58:- vhangup:153:58 vmsplice:278:75 vserver:236:-
"""
"""Every call up to the last that the filter knows and which a confined program has no business with."""

WELL_KNOWN = """
    getsockopt:55:209 madvise:28:233 mremap:25:216 statx:332:291 statfs:137:43 fstatfs:138:44 sysinfo:99:179
    preadv2:327:286 pwritev2:328:287 setrlimit:160:164 flock:73:32
        read:0:63 write:1:64 openat:257:56 close:3:57 mmap:9:222 mprotect:10:226 munmap:11:215 brk:12:214
    rt_sigaction:13:134 rt_sigprocmask:14:135 rt_sigreturn:15:139 ioctl:16:29 pread64:17:67 fork:57:-
    vfork:58:-     clone:56:220 execve:59:221 exit:60:93 wait4:61:260 kill:62:129 fcntl:72:25 getcwd:79:17
    chdir:80:49     ptrace:101:117 setuid:105:146 setgid:106:144 setreuid:113:145 capset:126:91
    pivot_root:155:41 prctl:157:167     chroot:161:51 mount:165:40 umount2:166:39 reboot:169:142
    sethostname:170:161 futex:202:98 tkill:200:130     exit_group:231:94 tgkill:234:131 keyctl:250:219
    unlinkat:263:35 unshare:272:97 perf_event_open:298:241     prlimit64:302:261 open_by_handle_at:304:265
    setns:308:268 process_vm_readv:310:270 seccomp:317:277     getrandom:318:278 memfd_create:319:279
    kexec_load:246:104 bpf:321:280 userfaultfd:323:282 socket:41:198     connect:42:203 sendto:44:206
    socketpair:53:199 pidfd_send_signal:424:424 io_uring_setup:425:425     pidfd_open:434:434 clone3:435:435
    close_range:436:436 pidfd_getfd:438:438 mount_setattr:442:442     landlock_create_ruleset:444:444
    landlock_add_rule:445:445 landlock_restrict_self:446:446 memfd_secret:447:447
"""
"""Calls whose numbers must not be wrong, whether they are free or refused."""

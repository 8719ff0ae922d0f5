"""The caps of the contract, each with its reason. A change of a cap is a change of the contract."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class TreeLimits:
    """What one directory of files may hold. It is checked before any file is read."""

    files: int
    file_bytes: int
    total_bytes: int
    depth: int


@dataclass(frozen=True, slots=True)
class CollectionLimits:
    """What the harness takes from the workspace of an agent. What is over a cap is named and left out."""

    entries: int
    depth: int
    file_bytes: int
    total_bytes: int
    path_bytes: int
    seconds: float
    patch_bytes: int
    # Lines of one file that are compared with each other; the time grows with their square.
    compared_lines: int


@dataclass(frozen=True, slots=True)
class Limits:
    """The caps that are checked before bytes from outside become records."""

    # A case is a small repository at most. A sparse file of 1 TiB must be refused by its size alone.
    case_tree: TreeLimits = TreeLimits(files=10_000, file_bytes=32 * MIB, total_bytes=128 * MIB, depth=16)
    # The rubric's sources are kept in memory for the whole run and written once per case.
    rubric_tree: TreeLimits = TreeLimits(files=64, file_bytes=1 * MIB, total_bytes=2 * MIB, depth=4)
    # 100,000 cases would need 9 MB of digests, and hashing them takes too long for any user.
    cases: int = 100_000
    # Hashing this much takes ten seconds. Every real bench needs less, but sparse files are large at no cost.
    bench_bytes: int = 16 * 1024 * MIB
    digests_bytes: int = 10 * MIB
    # One dotted key of 64 KB keeps tomllib 3.11 busy for 10 s: quadratic (cpython #149231).
    toml_bytes: int = 16 * KIB
    toml_dots_per_line: int = 64
    # A registration is 20 lines; the parser of 3.11 is recursive, so its input stays small.
    python_bytes: int = 16 * KIB
    yaml_bytes: int = 256 * KIB
    # A rubric of 1 MiB compiles in half a second; one f-string of 900 KB takes 100 s, a list of names 570 MB.
    compile_cpu_seconds: int = 20
    compile_memory_bytes: int = 1024 * MIB
    # If even this is not enough, the machine is too busy and the rubric is not to blame.
    compile_seconds: float = 120.0
    # Our own records are three levels deep, and json.loads recurses in C.
    nesting: int = 32
    # A level of a tagged value is two levels of JSON, and four more are around it in the request of a rubric.
    tagged_levels: int = 13
    # The calls of one step of a case, and the file that lists them.
    calls: int = 1_000
    calls_bytes: int = 4 * MIB
    # What is taken down of one step: each stream, each file that it is asked for, one reply, all replies.
    step_stream_bytes: int = 64 * KIB
    step_file_bytes: int = 1 * MIB
    step_reply_bytes: int = 1 * MIB
    step_replies_bytes: int = 4 * MIB
    # The files of all steps of one trial. They are in the one request that the rubric parses.
    step_files_bytes: int = 8 * MIB
    # A value can be three bytes of JSON, but it takes some hundred bytes of memory: 16 MiB took 430 MB.
    json_values: int = 500_000
    # An answer of a rubric is some hundred bytes; 1 MiB leaves room for generous breakdowns.
    rubric_stdout_bytes: int = 1 * MIB
    # The tail of stderr explains a failure; more does not help.
    rubric_stderr_bytes: int = 64 * KIB
    # An agent's whole change as text. Larger outputs belong in files that the rubric does not parse.
    sut_output_bytes: int = 16 * MIB
    sut_log_bytes: int = 256 * KIB
    # What is kept of each stream of an agent: how it began, and how it came to its end.
    agent_stream_head_bytes: int = 1 * MIB
    agent_stream_tail_bytes: int = 4 * MIB
    # An agent's work is a change that a person could read. What is larger was downloaded, built or left there
    # to keep the harness busy: 12,000 files and 3,000 levels are collected in a second.
    collected: CollectionLimits = CollectionLimits(
        entries=20_000,
        depth=64,
        file_bytes=1 * MIB,
        total_bytes=8 * MIB,
        path_bytes=1_024,
        seconds=20.0,
        patch_bytes=16 * MIB,
        compared_lines=4_000,
    )
    # Contract: a detail is one line of at most 200 characters, with at most 16 failures per kind of key.
    detail_characters: int = 200
    unknown_keys_reported: int = 16
    # Any other free text of a record: a spec, a version, a filter, a finding.
    text_characters: int = 2_000
    findings: int = 1_000
    # A rubric that names more failures than this does not describe one case.
    failure_modes: int = 256
    breakdown_keys: int = 256
    # One record holds the whole finish of a run. Verifying it takes several times as much memory.
    record_bytes: int = 512 * MIB
    # What one run keeps of all its cases: 1 MiB of output for each of a thousand cases. A hostile rubric of a
    # large bench would write 120 GB. At most half goes to logs, because a later re-score needs the outputs.
    run_artifact_bytes: int = 1024 * MIB
    run_log_bytes: int = 512 * MIB
    # One answer in the log, which holds each answer up to three times. In a large run each answer gets a
    # share of the record. Our own failures need the least share, so a plan with a smaller one is refused.
    answer_bytes: int = 32 * KIB
    least_answer_bytes: int = 1 * KIB
    # A value of a record takes some hundred bytes of memory, however short its text is.
    bytes_per_value: int = 32
    # rlimits of a rubric child: address space for two interpreters, and files that fit on the disk.
    child_address_space_bytes: int = 2048 * MIB
    # The smallest address space, on a small machine or with many rubrics at once: all of them together get at
    # most half of the memory. An interpreter with some data does not run in less than this.
    least_child_address_space_bytes: int = 512 * MIB
    child_file_bytes: int = 32 * MIB
    # A user may have 16,384 pages in pipes. Sixteen cases of 62 pipes with 16 pages each stay below it.
    child_open_files: int = 128
    # A rubric may use the time of one processor until its deadline, plus this many seconds. So several
    # threads cannot use the time of all processors. A rubric with one thread reaches its deadline first.
    child_cpu_spare_seconds: int = 2
    # Small stacks avoid the limit of the address space: 400 threads were started with 32 KiB each. Every
    # thread also takes a share of the processor: 125 threads left the case beside them one part in 126.
    child_threads: int = 16
    # Processes and threads of the user that a rubric cannot take. Without them neither this harness nor
    # another one could start a process.
    user_tasks_kept: int = 32
    # Pending real-time signals: 96,349 were all that a user had, and then no process could make a timer.
    child_pending_signals: int = 64
    # What a confined rubric may write outside its copy of the case. These files are held in memory.
    scratch_bytes: int = 64 * MIB
    scratch_entries: int = 4_096
    # One zygote serves this many cases. It keeps nothing of a case that we know of; the rest ends with it.
    zygote_cases: int = 500
    # A zygote needs namespaces, a root of mounts and one fork: some 50 ms on a quiet machine.
    zygote_seconds: float = 20.0
    # A helper process (such as multiprocessing's resource tracker) needs this to notice its parent's exit.
    leak_grace_seconds: float = 0.25
    # Writing a record takes milliseconds. A process that holds the log longer is stuck, or wants to block us.
    lock_seconds: float = 15.0
    # A case of ordinary size is removed at once. A larger one is removed in the background of the run.
    removed_at_once: int = 512
    # Hostile code may leave too much to remove while the user waits for the end of a run.
    removal_seconds: float = 10.0
    # How long to wait for resources that other processes of the user hold, such as threads of another case.
    start_seconds: float = 5.0
    # A rubric gets its seconds plus the time in which it had no processor, up to this multiple.
    deadline_stretch: int = 4
    # From the deadline of a child to the moment when we give up on its supervisor.
    teardown_seconds: float = 5.0
    # Environment values shorter than this occur in ordinary text, and redacting them would destroy that text.
    secret_characters: int = 8
    # A copy is below TMPDIR, and a whole path may have 4,096 bytes. Longer paths could not be copied.
    path_characters: int = 1_024
    # A class has seven entries. If there are hundreds, say so without listing a million.
    class_entries: int = 256
    # How many lines of one output `show --diff` compares. The time grows with their square: some seconds.
    compared_lines: int = 20_000
    # How many findings of one rule the fence lists per class, so that one rule cannot hide the others.
    fence_findings_per_rule: int = 100
    # Python prints at most 4,300 digits, and a message must be able to name every integer that we accept.
    integer_bits: int = 4_096
    # More than any pyproject.toml has. tomllib needs a second for 256 lines of 512 dots, minutes for 100,000.
    settings_bytes: int = 256 * KIB
    settings_dots_per_line: int = 512
    # 256 KiB of short keys below a header of 512 parts kept tomllib busy for 7 s; this many steps take 1 s.
    settings_steps: int = 500_000
    # The most that one call may claim to have cost: larger sums overflow, and one SUT would end the run.
    cost_usd: float = 1e9
    # The most tokens or requests that one trial may state. It is far above every context of a year.
    counted_tokens: int = 10**15
    # A provider answers for one or two models. An agent that asks for hundreds does not fill the record.
    named_models: int = 16
    # A void attempt is repeated at most twice. Each costs as much as a measurement.
    attempts: int = 3
    # Importing an agent may load a large library once. If it takes longer than this, it hangs.
    sut_check_seconds: float = 60.0
    # Each entry of a directory that only root can enter is mounted in every box.
    closed_directory_entries: int = 256
    # The files that a Python agent consists of. What has more of them includes packages that are not its own.
    agent_modules: int = 5_000
    agent_code_bytes: int = 64 * MIB
    # A clock with a later year is wrong. Records with such a date would block an agent until then.
    latest_year: int = 2060
    trials: int = 1_000
    concurrency: int = 256
    # Exact recursion is quadratic per evaluation: 0.04 s at 200 units, 1 s at 1,000 in pure Python.
    gaffke_units: int = 500


LIMITS = Limits()

"""The caps of the contract, each with its reason. Changing one is a change of the contract."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class TreeLimits:
    """What one directory of files may hold before any of it is read."""

    files: int
    file_bytes: int
    total_bytes: int
    depth: int


@dataclass(frozen=True, slots=True)
class Limits:
    """The caps that outside bytes meet before they become records."""

    # A case is a small repository at most; 1 TiB of sparse file must be refused by its size alone.
    case_tree: TreeLimits = TreeLimits(files=10_000, file_bytes=32 * MIB, total_bytes=128 * MIB, depth=16)
    # The rubric's sources are kept in memory for the whole run and written once per case.
    rubric_tree: TreeLimits = TreeLimits(files=64, file_bytes=1 * MIB, total_bytes=2 * MIB, depth=4)
    # 100,000 cases would need 9 MB of digests; hashing them takes longer than anybody waits.
    cases: int = 100_000
    # Ten seconds of hashing, and more than any bench needs; a sparse file is large for nothing.
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
    # On a machine so busy that this is not enough, nothing is the rubric's fault.
    compile_seconds: float = 120.0
    # Our own records are three levels deep; json.loads recurses in C.
    nesting: int = 32
    # Three bytes of JSON can be a value, and a value takes some hundred bytes of memory: 16 MiB took 430 MB.
    json_values: int = 500_000
    # An answer of a rubric is some hundred bytes; 1 MiB leaves room for generous breakdowns.
    rubric_stdout_bytes: int = 1 * MIB
    # The tail of stderr explains a failure; more is noise.
    rubric_stderr_bytes: int = 64 * KIB
    # An agent's whole change as text. Larger outputs belong in files that the rubric need not parse.
    sut_output_bytes: int = 16 * MIB
    sut_log_bytes: int = 256 * KIB
    # Contract: detail is one line of at most 200 characters, and at most 16 failures per kind of key.
    detail_characters: int = 200
    unknown_keys_reported: int = 16
    # Any other free text of a record: a spec, a version, a filter, a finding.
    text_characters: int = 2_000
    findings: int = 1_000
    # A rubric that names more failures than this is not describing one case.
    failure_modes: int = 256
    breakdown_keys: int = 256
    # One record holds the whole finish of a run; verifying it takes some times as much memory.
    record_bytes: int = 512 * MIB
    # What one run keeps of all its cases: 1 MiB of output for each of a thousand; a hostile rubric of a large
    # bench would write 120 GB. Half of it at most goes to logs: outputs are what a later re-score needs.
    run_artifact_bytes: int = 1024 * MIB
    run_log_bytes: int = 512 * MIB
    # One answer in the log, which holds it up to three times. In a large run each has a share of the record,
    # and below the least one, which our own failures need, there is no plan.
    answer_bytes: int = 32 * KIB
    least_answer_bytes: int = 1 * KIB
    # A value of a record takes some hundred bytes of memory, however short it is written.
    bytes_per_value: int = 32
    # rlimits of a rubric child: two interpreters' worth of address space, files that fit the disk.
    child_address_space_bytes: int = 2048 * MIB
    # What is left of it on a small machine, or with many rubrics at once, which together have half of the
    # memory at most; less than this no interpreter with some data runs in.
    least_child_address_space_bytes: int = 512 * MIB
    child_file_bytes: int = 32 * MIB
    # A user may have 16,384 pages in pipes. Sixteen cases of 62 pipes each, at 16 pages a pipe, leave a rest.
    child_open_files: int = 128
    # A rubric has the time of one processor until its deadline, and so much more: several threads do not
    # have that of all processors. The deadline comes first for who has one thread.
    child_cpu_spare_seconds: int = 2
    # Small stacks go around the limit of the address space: 400 threads were made with 32 KiB each. And each
    # has a share of its processor: 125 threads left the case beside them one part in 126.
    child_threads: int = 16
    # Processes and threads of its user that no rubric can take: without them neither this harness nor
    # another could start anything.
    user_tasks_kept: int = 32
    # Signals that wait, of a real-time kind: 96,349 were all that a user had, and no timer could be made.
    child_pending_signals: int = 64
    # What a confined rubric may write beside its copy of the case: it lies in memory.
    scratch_bytes: int = 64 * MIB
    scratch_entries: int = 4_096
    # One zygote serves this many cases. It keeps nothing of any; what we do not know of ends with it.
    zygote_cases: int = 500
    # Namespaces, a root of mounts and one fork; some 50 ms on a quiet machine.
    zygote_seconds: float = 20.0
    # What a helper process (multiprocessing's resource tracker, for one) needs to notice its parent's exit.
    leak_grace_seconds: float = 0.25
    # Writing a record takes milliseconds; whoever holds the log for longer is stuck, or wants us to be.
    lock_seconds: float = 15.0
    # A case of ordinary size goes at once; whatever is larger is removed beside the run, and not before it.
    removed_at_once: int = 512
    # What hostile code left may be too much to remove while somebody waits for the end of a run.
    removal_seconds: float = 10.0
    # For what others of the user have taken, their threads for one, which end with their case.
    start_seconds: float = 5.0
    # A rubric has its seconds and those in which the machine had no processor for it, up to this multiple.
    deadline_stretch: int = 4
    # From the deadline of a child to the moment when we stop believing in its keeper.
    teardown_seconds: float = 5.0
    # Environment values shorter than this occur in ordinary text; redacting them would destroy it.
    secret_characters: int = 8
    # A copy lies below TMPDIR, and a whole path may have 4,096 bytes: what cannot be copied is not taken.
    path_characters: int = 1_024
    # A class has seven entries; whoever finds hundreds is told so without waiting for a million.
    class_entries: int = 256
    # Lines that `show --diff` compares of one output: the time grows with their square, here to some seconds.
    compared_lines: int = 20_000
    # What the fence lists of one rule in one class: no rule can bury another under a million findings.
    fence_findings_per_rule: int = 100
    # Python prints at most 4,300 digits: an integer that no message could name is refused where it comes in.
    integer_bits: int = 4_096
    # More than any pyproject.toml has; 256 lines of 512 dots take tomllib a second, one of 100,000 minutes.
    settings_bytes: int = 256 * KIB
    settings_dots_per_line: int = 512
    # 256 KiB of short keys below a header of 512 parts kept tomllib busy for 7 s; this much takes one.
    settings_steps: int = 500_000
    # What one call may claim to have cost: sums of larger numbers overflow, and one SUT would end the run.
    cost_usd: float = 1e9
    # Importing an agent may load a large library once; longer is a hang.
    sut_check_seconds: float = 60.0
    # A machine whose clock says that it is later is set wrong; what it would write bars an agent until then.
    latest_year: int = 2060
    trials: int = 1_000
    concurrency: int = 256
    # Exact recursion is quadratic per evaluation: 0.04 s at 200 units, 1 s at 1,000 in pure Python.
    gaffke_units: int = 500


LIMITS = Limits()

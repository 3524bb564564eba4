"""The first half of the sandbox's child: installs every block on itself, then becomes the harness.

Run as a script of its own, by the standard library alone, with the arguments of `main`. On Linux: another user where it
is root, no new privileges, resource limits, landlock (no write outside of one folder), seccomp (no process, no thread,
no socket, no signal to others, no change of a file's owner, mode or times). On macOS: sandbox-exec with the same rules;
address space is not limited there, so the parent watches it. A block that cannot be installed ends the child with one
line that names it, before a byte of the program has been read.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import pwd
import resource
import sys
from pathlib import Path

# Numbers of the system calls on x86_64 and aarch64 ("-": there is none), from Linux's uapi/asm/unistd headers.
DENIED = {
    "processes and threads": "clone 56 220, fork 57 -, vfork 58 -",
    "network": "socket 41 198, io_uring_setup 425 425, io_uring_enter 426 426, io_uring_register 427 427",
    "other processes": (
        "ptrace 101 117, process_vm_readv 310 270, process_vm_writev 311 271, tkill 200 130, pidfd_send_signal 424 424,"
        "rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240, pidfd_open 434 434, pidfd_getfd 438 438,"
        "process_madvise 440 440, process_mrelease 448 448, setpriority 141 140, ioprio_set 251 30,"
        "sched_setparam 142 118, sched_setscheduler 144 119, sched_setaffinity 203 122, sched_setattr 314 274"
    ),
    "owners, modes and times, which landlock leaves open": (
        "chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, chown 92 -, lchown 94 -, fchown 93 55,"
        "fchownat 260 54, utime 132 -, utimes 235 -, futimesat 261 -, utimensat 280 88, setxattr 188 5,"
        "lsetxattr 189 6, fsetxattr 190 7, removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16, flock 73 32"
    ),
    "what outlives the process": "shmget 29 194, msgget 68 186, semget 64 190, mq_open 240 180, memfd_create 319 279",
    "the kernel": (
        "mount 165 40, umount2 166 39, unshare 272 97, setns 308 268, pivot_root 155 41, chroot 161 51,"
        "open_tree 428 428, move_mount 429 429, fsopen 430 430, fsconfig 431 431, fsmount 432 432, fspick 433 433,"
        "mount_setattr 442 442, open_by_handle_at 304 265, bpf 321 280, perf_event_open 298 241, userfaultfd 323 282,"
        "add_key 248 217, request_key 249 218, keyctl 250 219"
    ),
}
OWN_PROCESS_ONLY = "kill 62 129, tgkill 234 131, prlimit64 302 261"
CLONE3 = 435  # its flags lie in memory; "not there" makes the C library use clone
LAST_KNOWN = 462  # later calls answer "not there", as an older kernel does
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

PROFILE = """(version 1)
(allow default)
(deny network*)
(deny process-fork)
(deny signal (target others))
(deny mach-lookup)
(deny file-write*)
(allow file-write* (subpath (param "FOLDER")) (literal "/dev/null"))
"""

_CLONE_NEWNS = 0x20000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 1, 22, 38, 47
_CAP_AMBIENT_CLEAR_ALL = 4
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_ABI = 3  # the first that guards truncation
# Of linux/landlock.h: write 1, remove folder 4, file 5, make device 6, folder 7, file 8, socket 9, fifo 10, block
# device 11, symlink 12, move between folders 13, truncate 14.
_FILE_WRITES = 1 << 1 | 1 << 14
_WRITES = _FILE_WRITES | sum(1 << bit for bit in (4, 5, 6, 7, 8, 9, 10, 11, 12, 13))


class NoBlock(Exception):
    """A block that this machine does not have or does not permit."""


class _Libc:
    """Calls of the C library that raise `NoBlock` by name."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(None, use_errno=True)

    def call(self, block: str, name: str, *arguments: object) -> int:
        result = int(self.library[name](*arguments))
        if result < 0:
            raise NoBlock(f"{block}: {name} says {os.strerror(ctypes.get_errno())}")
        return result


def free_uid(start: int) -> int:
    """The first user number from `start` that has no account."""
    uid = start
    while True:
        try:
            pwd.getpwuid(uid)
        except KeyError:
            return uid
        uid += 1


def become(uid: int) -> None:
    """Another user and group for good, and no other group. Raises `NoBlock`."""
    try:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    except OSError as error:
        raise NoBlock(f"another user: {error}") from error
    if 0 in (os.getuid(), os.geteuid(), os.getgid(), os.getegid()):
        raise NoBlock("another user: still root")


def can_read(uid: int, *paths: str) -> bool:
    """Whether a user may read the files; asked by a process that becomes this user."""
    child = os.fork()
    if child == 0:
        try:
            become(uid)
            os._exit(0 if all(os.access(path, os.R_OK) for path in paths) else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def readable_python(libc: _Libc | None, uid: int, mount_point: str) -> str:
    """The interpreter as user `uid` can run it: where its folders are closed to others, in a mount that only this
    process sees. Raises `NoBlock` where neither is possible."""
    python = os.path.realpath(sys.executable)
    if can_read(uid, python, os.__file__):
        return python
    prefix = os.path.realpath(sys.base_prefix)
    if libc is None or not python.startswith(prefix + os.sep):
        raise NoBlock(f"another user: {python} cannot be read by an unprivileged one")
    why = "another user: its view of the interpreter"
    libc.call(why, "unshare", _CLONE_NEWNS)
    libc.call(why, "mount", None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None)
    libc.call(why, "mount", prefix.encode(), mount_point.encode(), None, ctypes.c_ulong(_MS_BIND), None)
    os.environ["LD_LIBRARY_PATH"] = f"{mount_point}/lib"  # the path inside of the binary is the closed one
    return mount_point + python.removeprefix(prefix)


def limit(memory: int, cpu: int, file: int) -> None:
    """Resource limits: bytes of address space, seconds of CPU, bytes of a file. Raises `NoBlock`."""
    wanted = [
        (resource.RLIMIT_CPU, cpu, cpu + 1),
        (resource.RLIMIT_FSIZE, file, file),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_NOFILE, 64, 64),
    ]
    if sys.platform == "linux":
        wanted.append((resource.RLIMIT_AS, memory, memory))
    for which, soft, hard in wanted:
        try:
            resource.setrlimit(which, (soft, hard))
        except (OSError, ValueError) as error:
            raise NoBlock(f"resource limits: {error}") from error


def landlock(libc: _Libc, folder: str) -> None:
    """No write outside of `folder`, /dev/null apart. Raises `NoBlock`."""
    abi = libc.call(
        "landlock", "syscall", ctypes.c_long(_LANDLOCK_CREATE), None, ctypes.c_size_t(0), ctypes.c_uint32(1)
    )
    if abi < _LANDLOCK_ABI:
        raise NoBlock(f"landlock: version {abi}, at least {_LANDLOCK_ABI} is needed (Linux 6.2)")
    handled = ctypes.c_uint64(_WRITES)
    create = (ctypes.c_long(_LANDLOCK_CREATE), ctypes.byref(handled), ctypes.c_size_t(8), ctypes.c_uint32(0))
    rules = libc.call("landlock", "syscall", *create)
    for path, allowed in ((folder, _WRITES), ("/dev/null", _FILE_WRITES)):
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = allowed.to_bytes(8, sys.byteorder) + opened.to_bytes(4, sys.byteorder)
        add = (ctypes.c_long(_LANDLOCK_ADD), ctypes.c_int(rules), ctypes.c_int(1), rule, ctypes.c_uint32(0))
        libc.call("landlock", "syscall", *add)
        os.close(opened)
    libc.call("landlock", "syscall", ctypes.c_long(_LANDLOCK_RESTRICT), ctypes.c_int(rules), ctypes.c_uint32(0))
    os.close(rules)


def numbers(table: str, column: int) -> list[int]:
    """The numbers of one machine in a table of system calls."""
    rows = [entry.split()[1:] for entry in table.split(",")]
    return [int(row[column]) for row in rows if row[column] != "-"]


def bpf(machine: str, pid: int) -> bytes:
    """The seccomp filter as classic BPF. Raises `NoBlock` for a machine without a table."""
    if machine not in ARCHITECTURES:
        raise NoBlock(f"seccomp: no table of system calls for {machine}; there are {', '.join(ARCHITECTURES)}")
    column, architecture = ARCHITECTURES[machine]
    load, equal, greater, answer = 0x20, 0x15, 0x25, 0x06
    allow, kill, refuse, absent = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
    # seccomp_data: 0 number, 4 architecture, 16 low half of the first argument (both machines are little-endian).
    code = [(load, 0, 0, 4), (equal, 1, 0, architecture), (answer, 0, 0, kill), (load, 0, 0, 0)]
    code += [(greater, 0, 1, LAST_KNOWN), (answer, 0, 0, absent), (equal, 0, 1, CLONE3), (answer, 0, 0, absent)]
    for table in DENIED.values():
        for number in numbers(table, column):
            code += [(equal, 0, 1, number), (answer, 0, 0, refuse)]
    for number in numbers(OWN_PROCESS_ONLY, column):
        zero = 0 if number in numbers("prlimit64 302 261", column) else pid  # there 0 is the caller, to kill its group
        code += [(equal, 0, 5, number), (load, 0, 0, 16), (equal, 1, 0, pid), (equal, 0, 1, zero)]
        code += [(answer, 0, 0, allow), (answer, 0, 0, refuse)]
    code.append((answer, 0, 0, allow))
    return b"".join(
        c.to_bytes(2, "little") + bytes((jump, other)) + value.to_bytes(4, "little") for c, jump, other, value in code
    )


class _Program(ctypes.Structure):
    """struct sock_fprog of linux/filter.h."""

    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def seccomp(libc: _Libc) -> None:
    """The system calls of the tables answer "not permitted". Raises `NoBlock`."""
    code = bpf(platform.machine(), os.getpid())
    program = _Program(len(code) // 8, code)
    libc.call("seccomp", "prctl", _PR_SET_SECCOMP, ctypes.c_ulong(2), ctypes.byref(program), 0, 0)


def main(folder: str, mount_point: str, uid: str, memory: str, cpu: str, file: str) -> None:
    """Installs the blocks and becomes the harness. folder: where the program may write; mount_point: an empty folder
    beside it; uid: where the search for a free user number begins; memory, file: bytes; cpu: seconds."""
    harness = Path(__file__).with_name("sandbox_harness.py").read_text(encoding="utf-8")
    linux = sys.platform == "linux"
    libc = _Libc() if linux else None
    python = os.path.realpath(sys.executable)
    if os.geteuid() == 0 or os.getuid() == 0:
        user = free_uid(int(uid))
        python = readable_python(libc, user, mount_point)
        os.chown(folder, user, user)
        become(user)
    os.chdir(folder)
    limit(int(memory), int(cpu), int(file))
    command = [python, "-P", "-s", "-S", "-c", harness]
    if libc is not None:
        none = ctypes.c_ulong(0)
        ambient = (_PR_CAP_AMBIENT, ctypes.c_ulong(_CAP_AMBIENT_CLEAR_ALL), none, none, none)
        libc.call("no new privileges", "prctl", *ambient)
        libc.call("no new privileges", "prctl", _PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), none, none, none)
        libc.call("an end with the parent", "prctl", _PR_SET_PDEATHSIG, ctypes.c_ulong(9), none, none, none)
        landlock(libc, folder)
        seccomp(libc)
    elif sys.platform == "darwin":
        command = ["/usr/bin/sandbox-exec", "-D", f"FOLDER={os.path.realpath(folder)}", "-p", PROFILE, *command]
    else:
        raise NoBlock(f"landlock and seccomp: {sys.platform} has neither, and no sandbox-exec")
    os.execve(command[0], command, dict(os.environ))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (NoBlock, OSError) as error:
        sys.exit(str(error))

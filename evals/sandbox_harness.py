"""The second half of the sandbox's child: runs one program and then its tests, and says on a descriptor of its own how
that ended.

Its source is handed to an interpreter behind the blocks of `sandbox_blocks`, with a JSON job {"token", "program",
"tests"} as standard input. It answers "TOKEN started", then one of "TOKEN passed", "TOKEN failed WHY", "TOKEN memory",
in ASCII lines. Without the token nothing counts: a program that prints "passed" or ends early has not passed.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import types


def main() -> None:
    """One job; leaves by `os._exit`, so that nothing which the program has registered runs after the verdict."""
    job = json.loads(sys.stdin.buffer.read())
    token = job["token"].encode()
    private = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for shared in (0, 1, 2):
        os.dup2(null, shared)
    os.close(null)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    write, leave, to_text = os.write, os._exit, str  # the program may put its own in their place
    write(private, token + b" started\n")
    random.seed(0)
    module = types.ModuleType("program")
    sys.modules["program"] = module
    reserve = bytearray(1 << 20)  # room for the verdict after memory ran out
    try:
        exec(compile(job["program"], "<program>", "exec", dont_inherit=True), module.__dict__)
        exec(compile(job["tests"], "<tests>", "exec", dont_inherit=True), module.__dict__)
    except MemoryError:
        del reserve
        write(private, token + b" memory\n")
        leave(1)
    except BaseException as error:
        del reserve
        why = f"{type(error).__name__}: {to_text(error)}"[:300].replace("\n", " ")
        write(private, token + b" failed " + why.encode("ascii", "backslashreplace") + b"\n")
        raise
    write(private, token + b" passed\n")
    leave(0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""terminal.py PROGRAM [ARGUMENT ...] < STEPS - runs a program on a terminal of its own and types STEPS.

A step is a line: "TEXT" and "^D" are typed once the program asks for a line; "~ TEXT" waits until TEXT is shown; "^C" is
typed at once, as is "keys TEXT" without an end of line, with Python's escapes in TEXT; "size N" makes the terminal N
columns wide; "kill N" sends signal N. What was shown goes to stdout, the status is the program's. A minute without
what a step waits for end it with 99.
"""
import fcntl, os, pty, select, signal, struct, sys, termios, time

PROMPTS = (b"> ", b"... ")


def main():
    steps = sys.stdin.read().splitlines()
    pid, fd = pty.fork()
    if pid == 0:
        os.execvp(sys.argv[1], sys.argv[1:])
    shown, seen = bytearray(), 0

    def more(until):
        """Reads some output; False at the end."""
        ready, _, _ = select.select([fd], [], [], max(0, until - time.time()))
        if not ready:
            sys.stdout.write(shown.decode(errors="replace"))
            os.kill(pid, signal.SIGKILL)
            sys.exit(99)
        try:
            data = os.read(fd, 65536)
        except OSError:
            data = b""
        shown.extend(data)
        return bool(data)

    for step in steps:
        until = time.time() + 60
        if step == "^C":
            os.write(fd, b"\x03")
        elif step.startswith("keys "):
            os.write(fd, step[5:].encode().decode("unicode_escape").encode("latin-1"))
        elif step.startswith("size "):
            fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(step[5:]), 0, 0))
        elif step.startswith("kill "):
            os.kill(pid, int(step[5:]))
        elif step.startswith("~ "):
            want = step[2:].encode()
            while shown.find(want, seen) < 0 and more(until):
                pass
            seen = max(seen, shown.find(want, seen) + len(want))
        else:
            while not (len(shown) > seen and bytes(shown).endswith(PROMPTS)) and more(until):
                pass
            seen = len(shown)
            os.write(fd, b"\x04" if step == "^D" else step.encode() + b"\n")
    while more(time.time() + 60):
        pass
    sys.stdout.write(shown.decode(errors="replace").replace("\r\n", "\n"))
    status = os.waitpid(pid, 0)[1]
    sys.stdout.flush()
    sys.exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


main()

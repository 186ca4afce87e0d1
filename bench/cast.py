#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cast.py OUT.svg COMMAND [ARGUMENT ...] < LINES: types LINES into a program on a terminal, and draws what it shows as a moving
picture, SVG, which repeats.

    cd share/models && printf '%s\\n' 'What is 12 + 30?' 'Now add 5 to that.' /undo 'What does the C function strtod do?' '^D' |
        CHIMERE_MODEL=chimere-nano-q5_k_m.gguf PATH=../../bin:$PATH python3 ../../bench/cast.py ../../bench/chat.svg chimere-run -i

A line is typed, a key at a time, once the program asks for one with "> "; "^D" is that key. The times are those of the run,
but no pause is longer than PAUSE_S.
"""
import fcntl
import html
import itertools
import os
import pty
import re
import select
import struct
import sys
import termios
import time

COLUMNS, ROWS, KEY_S, PAUSE_S, READ_S, END_S = 84, 19, .05, .5, 1.5, 3
FONT, WIDE, HIGH = 14, 8.43, 19  # size, and a cell of a monospaced font


class Screen:
    """Cells of (character, dim), as a terminal has them after some output; only what our programs write is understood."""

    def __init__(self):
        self.rows, self.y, self.x, self.dim = [[] for _ in range(ROWS)], 0, 0, False

    def put(self, text):
        for sequence, char in re.findall(r"(\x1b\[[?0-9;]*[A-Za-z])|([\s\S])", text):
            if sequence:
                self.control(sequence[2:-1], sequence[-1])
            elif char == "\n":
                self.down()
            elif char == "\r":
                self.x = 0
            elif char == "\b":
                self.x = max(0, self.x - 1)
            elif char >= " ":
                row = self.rows[self.y]
                row += [(" ", False)] * (self.x + 1 - len(row))
                row[self.x] = (char, self.dim)
                self.x += 1
                if self.x == COLUMNS:
                    self.x = 0
                    self.down()

    def down(self):
        self.y += 1
        if self.y == ROWS:
            self.rows = self.rows[1:] + [[]]
            self.y -= 1

    def control(self, number, letter):
        n = int(number) if number.isdigit() else 0
        if letter == "m":
            self.dim = n == 2
        elif letter == "K" and n == 0:
            del self.rows[self.y][self.x:]
        elif letter == "J" and n == 0:
            del self.rows[self.y][self.x:]
            self.rows[self.y + 1:] = [[] for _ in self.rows[self.y + 1:]]
        elif letter in "ABCD":
            self.x += {"C": n or 1, "D": -(n or 1)}.get(letter, 0)
            self.y += {"A": -(n or 1), "B": n or 1}.get(letter, 0)
        elif letter == "G":
            self.x = max(1, n) - 1

    def lines(self):
        return [tuple(row) for row in self.rows]


def record(command, lines):
    """[(seconds, text)]: what was shown, and when, with pauses cut."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", NO_PROXY="*")
        os.execvp(command[0], command)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    events, now, last, all_text = [(0, "$ " + " ".join(command) + "\r\n")], 1.0, time.monotonic(), ""

    def read(wait_s):
        nonlocal now, last, all_text
        if not select.select([fd], [], [], wait_s)[0]:
            return False
        try:
            text = os.read(fd, 65536).decode(errors="replace")
        except OSError:
            return False
        now += min(PAUSE_S, time.monotonic() - last)
        last = time.monotonic()
        events.append((now, text))
        all_text += text
        return True

    for line in lines:
        while not all_text.endswith("> "):
            if not read(60):
                sys.exit("the program asks for nothing: " + all_text[-200:])
        now, all_text = now + READ_S, ""
        for key in ["\x04"] if line == "^D" else line + "\r":
            now, last = now + KEY_S, time.monotonic()
            os.write(fd, key.encode())
            read(1)
    while read(60):
        pass
    os.waitpid(pid, 0)
    return events


def draw(events):
    """Each line of the screen as often as it changes, shown for its time."""
    screen, shown, spans = Screen(), [()] * ROWS, []
    since = [0.0] * ROWS
    end = events[-1][0] + END_S
    for at, text in events + [(end, "")]:
        screen.put(text)
        for y, row in enumerate(screen.lines()):
            if row != shown[y] or at == end:
                if shown[y] and at > since[y]:
                    spans.append((y, shown[y], since[y], at))
                shown[y], since[y] = row, at
    width, height = COLUMNS * WIDE + 24, ROWS * HIGH + 24
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" font-family="monospace" font-size="{FONT}" '
           'xml:space="preserve" fill="#e6e6e6"><rect width="100%" height="100%" rx="8" fill="#1e1e2a"/>']
    for y, row, start, stop in spans:
        text = ""
        for dim, cells in itertools.groupby(row, key=lambda cell: cell[1]):
            run = html.escape("".join(char for char, _ in cells))
            text += f'<tspan fill="#8a8a9a">{run}</tspan>' if dim else run
        times = f"0;{start / end:.4f};{stop / end:.4f}" if start > 0 else f"0;{stop / end:.4f}"
        values = "hidden;visible;hidden" if start > 0 else "visible;hidden"
        if stop == end:
            times, values = times.rsplit(";", 1)[0], values.rsplit(";", 1)[0]
        out.append(f'<text x="12" y="{12 + HIGH * y + FONT}" visibility="{"hidden" if stop < end else "visible"}">'
                   f'{text}<animate attributeName="visibility" calcMode="discrete" dur="{end:.1f}s" repeatCount="indefinite" '
                   f'keyTimes="{times}" values="{values}"/></text>')
    return "\n".join(out + ["</svg>", ""])


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    picture = draw(record(sys.argv[2:], sys.stdin.read().splitlines()))
    with open(sys.argv[1], "w") as f:
        f.write(picture)

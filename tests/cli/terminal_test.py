#!/usr/bin/env python3
"""A run on a terminal whose every row is known: terminal_test.py PROGRAM.

The program writes to a pseudo-terminal. Screen draws what arrives as tmux does: it wraps at the width, scrolls, moves and
clears, and wraps its rows anew when it becomes narrower.
"""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else ""
LIMIT_S = 120
BAR = re.compile(r"^ *\d+ % ([#-]{10,40}|[\u2588\u2591]{10,40})")
CONFIG = """\
model: {type: gpt2, layers: 2, hidden: 64, heads: 4, seq: 64}
data: {text: [text.txt]}
train: {steps: 40, micro_batch: 2, eval_steps: 1, eval_every: 20, log_every: 10}
optimizer: {lr: 3e-3}
zero: {stage: 3}
launch: {nproc: 2, timeout: 60s}
output: {dir: run}
"""


class Screen:
    """Rows without end; a row that was filled goes on in the next one."""

    def __init__(self, columns):
        self.columns = columns
        self.rows, self.goes_on = [""], [False]
        self.row = self.column = 0
        self.unknown = []

    def feed(self, text):
        for part in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|\x1b.|.", text, re.S):
            self.put(part)

    def put(self, part):
        if part == "\n":
            self.row += 1
            if self.row == len(self.rows):
                self.rows.append("")
                self.goes_on.append(False)
        elif part == "\r":
            self.column = 0
        elif part == "\x1b[K":
            self.rows[self.row] = self.rows[self.row][:self.column]
            self.goes_on[self.row] = False
        elif part == "\x1b[1A":
            self.row = max(self.row - 1, 0)
        elif part.startswith("\x1b["):
            if part[-1] != "m":
                self.unknown.append(part)
        else:
            if self.column == self.columns:
                self.goes_on[self.row] = True
                self.put("\n")
                self.column = 0
            row = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = row[:self.column] + part + row[self.column + 1:]
            self.column += 1

    def lines(self):
        """Rows as the program wrote them."""
        lines, last = [], ""
        for row, goes_on in zip(self.rows, self.goes_on):
            last += row
            if not goes_on:
                lines.append(last)
                last = ""
        return lines

    def resize(self, columns):
        first = self.row  # of the rows of the cursor's line
        while first > 0 and self.goes_on[first - 1]:
            first -= 1
        line_number = sum(not goes_on for goes_on in self.goes_on[:first])
        offset = sum(len(row) for row in self.rows[first:self.row]) + self.column
        lines = self.lines()
        self.columns, self.rows, self.goes_on = columns, [], []
        for number, line in enumerate(lines):
            if number == line_number:
                self.row = len(self.rows) + max(offset - 1, 0) // columns
                self.column = offset - (self.row - len(self.rows)) * columns
            pieces = [line[i:i + columns] for i in range(0, len(line), columns)] or [""]
            self.rows += pieces
            self.goes_on += [True] * (len(pieces) - 1) + [False]


class Run:
    """One run of the program, with its screen. `see`: called after each piece of output."""

    def __init__(self, folder, columns, words, environment, see=None):
        pid, fd = pty.fork()
        if pid == 0:
            os.chdir(folder)
            os.execve(PROGRAM, ["sluice", *words], environment)
        self.screen, self.fd, self.text = Screen(columns), fd, ""
        self.size(columns)
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            if not select.select([fd], [], [], 1)[0]:
                continue
            try:
                piece = os.read(fd, 65536)
            except OSError:
                break
            if not piece:
                break
            self.text += piece.decode(errors="replace")
            self.screen.feed(piece.decode(errors="replace"))
            if see:
                see(self)
        else:
            os.kill(pid, 9)
        self.code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.close(fd)

    def size(self, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

    def resize(self, columns):
        self.screen.resize(columns)
        self.size(columns)


class Terminal(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        with open(os.path.join(self.folder, "text.txt"), "w", encoding="utf-8") as file:
            file.write("".join(f"line {i} of a text that repeats itself a little; " for i in range(2000)))
        with open(os.path.join(self.folder, "tiny.yaml"), "w", encoding="utf-8") as file:
            file.write(CONFIG)

    def run_on(self, columns, *more, see=None, **variables):
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith("LC_") and key not in ("LANG", "NO_COLOR", "COLUMNS", "SLUICE_COMMAND")}
        environment |= {"TERM": "xterm", "LANG": "C.UTF-8"} | variables
        run = Run(self.folder, columns, ["train", "tiny.yaml", *more], environment, see)
        self.assertEqual(run.code, 0, run.text)
        self.assertEqual(run.screen.unknown, [])
        return run

    def log(self):
        with open(os.path.join(self.folder, "run/rank-0.log"), encoding="utf-8") as file:
            return file.read()

    def test_one_line_stays_in_place(self):
        most, seen = 0, set()

        def count_bars(run):
            nonlocal most
            bars = [line for line in run.screen.lines() if BAR.match(line)]
            most = max(most, len(bars))
            seen.update(bars)
            for bar in bars:
                self.assertLess(len(bar), 100)

        run = self.run_on(100, see=count_bars)
        self.assertEqual(most, 1)
        self.assertGreater(len(seen), 5)
        text = "\n".join(run.screen.lines())
        self.assertIsNone(re.search(BAR.pattern, text, re.M), text)
        self.assertIn(" step 40/40 | loss ", text)
        self.assertIn("validation loss", text)
        self.assertIn("\nsummary\n", text)
        self.assertIn("\u2588", run.text)

    def test_the_rank_log_has_whole_lines_alone(self):
        self.run_on(100)
        log = self.log()
        self.assertNotIn("\x1b", log)
        self.assertNotIn("\r", log)
        self.assertIsNone(re.search(BAR.pattern, log, re.M), log)
        for step in (1, 10, 20, 30, 40):
            self.assertIn(f" step {step}/40 | loss ", log)

    # Steps are slow enough for what was written before a resize to have arrived by then.
    def test_narrower_and_wider(self):
        widths = iter([50, 120, 30])

        def resize(run):
            if BAR.match(run.screen.rows[run.screen.row]) and not select.select([run.fd], [], [], 0)[0]:
                columns = next(widths, None)
                if columns:
                    run.resize(columns)

        run = self.run_on(110, "--set", "train.micro_batch=32", "--set", "model.seq=128", see=resize)
        self.assertIsNone(next(widths, None), "the run ended too early for all widths")
        bars = [line for line in run.screen.lines() if BAR.match(line)]
        self.assertEqual(bars, [])

    def test_terminals_that_cannot(self):
        plain = self.run_on(100, TERM="dumb")
        self.assertNotIn("\x1b", plain.text)
        self.assertIn(" step 40/40 | loss ", plain.text)
        ascii_run = self.run_on(100, LANG="C")
        self.assertRegex(ascii_run.text, r"\d % #*-+ ")
        self.assertNotIn("\u2588", ascii_run.text)
        no_colors = self.run_on(100, NO_COLOR="1")
        self.assertNotRegex(no_colors.text, r"\x1b\[[0-9;]*m")
        self.assertRegex(no_colors.text, r"\r\x1b\[K")

    def test_quiet(self):
        # Of two ranks one may hold the other up on a busy machine, which is a warning.
        run = self.run_on(100, "--quiet", "--set", "launch.nproc=1")
        self.assertEqual(run.text.strip(), "")
        self.assertTrue(os.path.exists(os.path.join(self.folder, "run/metrics.jsonl")))

    def test_ctrl_c_at_the_prompt_of_a_chat_ends_it(self):
        self.run_on(100, "--quiet", "--set", "train.steps=1", "--set", "launch.nproc=1")
        with open(os.path.join(self.folder, "chat.jinja"), "w", encoding="utf-8") as file:
            file.write("{% for m in messages %}{{ m.content }}{% endfor %}")
        typed = []

        def type_ctrl_c(run):
            if not typed and run.text.endswith("> "):
                typed.append(os.write(run.fd, b"\x03"))

        run = Run(self.folder, 100, ["generate", "--checkpoint", "run", "--chat", "--template", "chat.jinja"],
                  dict(os.environ), type_ctrl_c)
        self.assertEqual(run.code, 130, run.text)

    def test_elsewhere_lines_are_plain(self):
        answer = subprocess.run([PROGRAM, "train", "tiny.yaml"], cwd=self.folder, capture_output=True, text=True,
                                timeout=LIMIT_S, check=True)
        self.assertNotIn("\x1b", answer.stdout + answer.stderr)
        self.assertEqual(re.findall(r"^ step (\d+)/40 ", answer.stdout, re.M), ["1", "10", "20", "30", "40"])


if __name__ == "__main__":
    unittest.main()

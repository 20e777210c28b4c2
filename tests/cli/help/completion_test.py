#!/usr/bin/env python3
"""Completion in the real shells: completion_test.py PROGRAM. Exit status 77 where no shell is there.

Each shell runs on a terminal of its own with the script of `sluice completion SHELL`; keys are typed, and what appears
on the line is read. `sluice` on the PATH and ./sluice stand for the program, since completing runs neither.
"""
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else ""
LIMIT_S = 60
READY = "READY>"


class Shell:
    """An interactive shell in `folder`, after its first prompt."""

    def __init__(self, words, folder, setup):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            environment = {"PATH": os.environ["PATH"], "HOME": folder, "TERM": "dumb", "LC_ALL": "C", "PS1": READY,
                           "HISTFILE": "", "XDG_CONFIG_HOME": folder, "COLUMNS": "200"}
            os.execvpe(words[0], words, environment)
        self.text = ""
        self.send(setup + "\n")
        self.send("echo set-\"\"up\n")
        self.until(lambda: "set-up" in self.text)

    def send(self, keys):
        os.write(self.fd, keys.encode())

    def until(self, seen):
        end = time.monotonic() + LIMIT_S
        while not seen():
            if time.monotonic() > end:
                raise AssertionError(f"nothing of that kind within {LIMIT_S} s; there is:\n{self.text}")
            if select.select([self.fd], [], [], 0.2)[0]:
                self.text += os.read(self.fd, 65536).decode(errors="replace")
        return self.text

    def type(self, line, expected, keys="\t"):
        """Types a line and the keys that complete; waits for the text that must appear."""
        self.text = ""
        self.send(line + keys)
        self.until(lambda: expected in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|[\r\n\x07]", "", self.text))
        self.send("\x15")  # an empty line

    def close(self):
        os.close(self.fd)
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)


class Completion(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        for name in ("my.yaml", "other.txt"):
            open(os.path.join(self.folder, name), "w", encoding="utf-8").close()
        os.mkdir(os.path.join(self.folder, "runs-of-mine"))
        stub = os.path.join(self.folder, "sluice")
        with open(stub, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n")
        os.chmod(stub, 0o755)

    def script(self, shell):
        path = os.path.join(self.folder, "script." + shell)
        with open(path, "w", encoding="utf-8") as file:
            subprocess.run([PROGRAM, "completion", shell], stdout=file, check=True, timeout=LIMIT_S)
        return path

    def check(self, shell):
        self.addCleanup(shell.close)
        for program in ("sluice", "./sluice"):
            shell.type(f"{program} tra", f"{program} train ")
            shell.type(f"{program} data ins", f"{program} data inspect ")
            shell.type(f"{program} train --dry", "--dry-run ")
            shell.type(f"{program} train my", "my.yaml")
            shell.type(f"{program} train my.yaml --resume au", "--resume auto ")
            shell.type(f"{program} train --resume runs", "--resume runs-of-mine/")
            shell.type(f"{program} train --set zero.sta", "--set zero.stage=")
            shell.type(f"{program} train --set train.dtype=bf", "--set train.dtype=bf16")
            shell.type(f"{program} checkpoint export a --dtype bf", "--dtype bf16 ")
            shell.type(f"{program} completion fi", "completion fish")

    def need(self, name):
        if shutil.which(name) is None:
            self.skipTest(f"{name} is not there")

    def test_bash(self):
        self.need("bash")
        self.check(Shell(["bash", "--norc", "--noprofile", "-i"], self.folder,
                         f"PATH=$PWD:$PATH; bind 'set enable-bracketed-paste off'; source {self.script('bash')}"))

    def test_zsh(self):
        self.need("zsh")
        setup = f"PATH=$PWD:$PATH; autoload -Uz compinit; compinit -u -D; source {self.script('zsh')}"
        self.check(Shell(["zsh", "-f", "-i"], self.folder, setup))

    def test_zsh_function_file(self):
        self.need("zsh")
        os.rename(self.script("zsh"), os.path.join(self.folder, "_sluice"))
        setup = "PATH=$PWD:$PATH; fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D"
        shell = Shell(["zsh", "-f", "-i"], self.folder, setup)
        self.addCleanup(shell.close)
        shell.type("sluice tra", "sluice train ")
        shell.type("sluice train --dry", "--dry-run ")

    # fish says what it would offer for a line.
    def test_fish(self):
        self.need("fish")
        script = self.script("fish")

        def offers(line):
            answer = subprocess.run(["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"],
                                    cwd=self.folder, capture_output=True, text=True, check=True, timeout=LIMIT_S)
            self.assertEqual(answer.stderr, "")
            return [row.split("\t")[0] for row in answer.stdout.splitlines()]

        for program in ("sluice", "./sluice"):
            self.assertEqual(offers(f"{program} tra"), ["train"])
            self.assertEqual(offers(f"{program} data ins"), ["inspect"])
            self.assertEqual(offers(f"{program} train --dry"), ["--dry-run"])
            self.assertIn("my.yaml", offers(f"{program} train my"))
            self.assertIn("auto", offers(f"{program} train my.yaml --resume "))
            self.assertIn("runs-of-mine/", offers(f"{program} train my.yaml --resume runs"))
            self.assertNotIn("other.txt", offers(f"{program} train my.yaml --resume "))
            self.assertIn("train.dtype=bf16", offers(f"{program} train --set train.dtype="))
            self.assertIn("zero.bucket_bytes=", offers(f"{program} train --set zero.bucket"))
            self.assertIn("bf16", offers(f"{program} checkpoint export a --dtype "))
            self.assertEqual(offers(f"{program} train --nproc "), [])

    def test_an_unknown_shell_is_refused(self):
        answer = subprocess.run([PROGRAM, "completion", "tcsh"], capture_output=True, text=True, timeout=LIMIT_S,
                                check=False)
        self.assertEqual(answer.returncode, 2)
        self.assertIn("tcsh", answer.stderr)


if __name__ == "__main__":
    if not any(shutil.which(shell) for shell in ("bash", "zsh", "fish")):
        sys.exit(77)
    unittest.main()

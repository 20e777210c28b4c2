#!/usr/bin/env python3
"""Seconds from a wheel of Sluice to the first training step, in an environment that has torch.

Usage: PYTHON-WITH-TORCH first_step.py SLUICE.whl

Installs the wheel into an empty folder with that Python's pip, starts the quickstart in another, and stops the run after
its first step. Prints the seconds of the installation, and from the start of the command to the line of the first step.
"""
import os
import subprocess
import sys
import tempfile
import time


def main(wheel):
    with tempfile.TemporaryDirectory() as top:
        site, work = os.path.join(top, "site"), os.path.join(top, "work")
        os.mkdir(work)
        begin = time.monotonic()
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, os.path.abspath(wheel)],
                       check=True)
        print(f"install           {time.monotonic() - begin:5.1f} s")
        command = [sys.executable, "-m", "sluice", "train", "quickstart.yaml", "--set", "train.log_every=1", "--set",
                   "train.steps=1", "--set", "train.eval_every=0", "--set", "train.sample_tokens=0"]
        begin = time.monotonic()
        run = subprocess.Popen(command, cwd=work, env=dict(os.environ, PYTHONPATH=site), stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
        lines = []
        for line in run.stdout:
            lines.append(line)
            if " step 1/1 " in line:
                print(f"start to step 1   {time.monotonic() - begin:5.1f} s")
                run.stdout.read()
                return run.wait()
        sys.stderr.writelines(lines)
        return run.wait() or 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))

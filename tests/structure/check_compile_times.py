#!/usr/bin/env python3
"""No translation unit outside the listed bridges may take more than 5 s to compile.

Usage: check_compile_times.py BUILD/.ninja_log [--retime] [--since=COMMIT]
Run it after a cold build with ccache off (CCACHE_DISABLE=1).  Exempt are *_bridge.cpp, *.cu and tests of
tier 2 (those that see libtorch without the fence macros).  Of several entries for one output the fastest counts.
Sources that were compiled together (SLUICE_UNITY, SLUICE_UNITY_TESTS) each took at most the time of all of them: where
that is over the limit, --retime compiles each alone that changed since COMMIT (default: each), for a minute and a
half at most: those it does not come to are counted.
--retime compiles each slow unit once more, alone, and takes its processor time when that is less: on a busy
machine the log holds waiting too.  It also times one include of ATen/core/Tensor.h, 1.2 s on the machine the
limit was set for, and raises the limit by as much as this one is slower, up to twice.  SLUICE_TIME_FACTOR
(default 1.0) scales the limit as well.
"""
import json
import os
import re
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

LIMIT_SECONDS = 5.0
REFERENCE_SECONDS = 1.2  # g++ 12 -fsyntax-only of one line that includes ATen/core/Tensor.h
FENCE = "TORCH_ASSERT_ONLY_METHOD_OPERATORS"
JOINED_SECONDS = 90  # for compiling joined sources once more, alone
TORCH_API = "torch/csrc/api/include"


@dataclass
class Unit:
    source: str  # from the root
    command: str
    directory: str
    seconds: float
    joined: int = 1  # sources that were compiled together in that time

    @property
    def sees_all_of_torch(self):
        return TORCH_API in self.command and FENCE not in self.command

    @property
    def is_test(self):
        return self.source.startswith("tests/")

    @property
    def is_bridge(self):
        return self.source.endswith(("_bridge.cpp", ".cu"))

    @property
    def exempt(self):
        return self.is_bridge or (self.is_test and self.sees_all_of_torch)


def read_log(path):
    """Output -> seconds of its fastest entry."""
    fastest = {}
    with open(path, encoding="utf-8") as stream:
        header = stream.readline()
        if not header.startswith("# ninja log v"):
            raise ValueError(f"{path} is not a ninja log")
        for line in stream:
            fields = line.rstrip("\n").split("\t")
            if len(fields) < 5:
                continue  # a line cut short by a killed ninja
            seconds = (int(fields[1]) - int(fields[0])) / 1000.0
            output = fields[3]
            fastest[output] = min(seconds, fastest.get(output, seconds))
    return fastest


def compile_commands(build):
    """The entries of BUILD/compile_commands.json for sources of ours, and how many were compiled together."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as stream:
        entries = json.load(stream)
    for entry in entries:
        files = [entry["file"]]
        if entry["file"].startswith(build + os.sep):
            if "/Unity/" not in entry["file"]:
                continue
            with open(entry["file"], encoding="utf-8") as stream:
                files = re.findall(r'^#include "(/[^"]+)"$', stream.read(), re.MULTILINE)
        for file in files:
            yield {**entry, "file": file, "command": entry["command"].replace(entry["file"], file)}, len(files)


def read_units(log_path, root):
    build = os.path.dirname(os.path.abspath(log_path))
    times = read_log(log_path)
    units = []
    for entry, joined in compile_commands(build):
        source = os.path.relpath(entry["file"], root)
        output = re.search(r" -o (\S+)", entry["command"])
        if not source.startswith("..") and output and output.group(1) in times:
            units.append(Unit(source, entry["command"], entry["directory"], times[output.group(1)], joined))
    return units


def processor_seconds(unit):
    env = dict(os.environ, CCACHE_DISABLE="1")
    # Not over the object: Ninja would take one newer than its own record for a changed one.
    command = re.sub(r" -o \S+", " -o /dev/null", unit.command, count=1)
    process = subprocess.Popen(command, shell=True, cwd=unit.directory, env=env)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return used.ru_utime + used.ru_stime


def changed_since(root, commit):
    """Paths that differ from COMMIT's, removed and untracked ones too; None where there is no such commit."""
    git = ["git", "-C", root, "-c", "core.quotePath=false"]
    if subprocess.run([*git, "rev-parse", "-q", "--verify", f"{commit}^{{commit}}"], capture_output=True,
                      check=False).returncode != 0:
        return None
    lists = (["diff", "--name-only", "--no-renames", commit], ["ls-files", "--others", "--exclude-standard"])
    return {name for arguments in lists
            for name in subprocess.run([*git, *arguments], capture_output=True, text=True,
                                       check=True).stdout.splitlines()}


def slowness(units):
    """How much slower this machine compiles than the one the limit was set for: 1 to 2."""
    for unit in units:
        torch = re.search(r"-isystem (\S+/torch/include)\b", unit.command)
        if not torch:
            continue
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(["g++", "-std=c++20", "-fsyntax-only", "-isystem", torch.group(1), "-x", "c++", "-"],
                       input=b"#include <ATen/core/Tensor.h>\n", check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return min(2.0, max(1.0, took / REFERENCE_SECONDS))
    return 1.0


def suspects(units, limit, changed=None):
    """The units that may be over the limit, of those compiled together only those named in `changed`."""
    return [unit for unit in sorted(units, key=lambda u: u.source)
            if not unit.exempt and unit.seconds > limit
            and (unit.joined == 1 or changed is None or unit.source in changed)]


def complaints(suspected, limit, retime, joined_seconds=JOINED_SECONDS):
    """One line for each unit over the limit; `retime` gives a unit's time alone, or is None."""
    deadline = time.monotonic() + joined_seconds

    def seconds_of(unit):
        if unit.joined > 1 and (not retime or time.monotonic() >= deadline):
            return None
        return min(unit.seconds, retime(unit)) if retime else unit.seconds

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        times = list(pool.map(seconds_of, suspected))
    for unit, seconds in zip(suspected, times):
        if seconds is not None and seconds > limit and retime:
            seconds = min(seconds, retime(unit))  # undisturbed
        if seconds is not None and seconds > limit:
            yield f"{unit.source}: {seconds:.1f} s, the limit is {limit:.1f} s; include less or split it"
    if None in times:
        print(f"{times.count(None)} sources that were compiled together were not timed alone")


def main(argv):
    arguments = [a for a in argv[1:] if not a.startswith("--")]
    options = [a for a in argv[1:] if a.startswith("--")]
    since = next((a.removeprefix("--since=") for a in options if a.startswith("--since=")), None)
    if len(arguments) != 1 or any(a != "--retime" and not a.startswith("--since=") for a in options):
        print(__doc__, file=sys.stderr)
        return 2
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
    units = read_units(arguments[0], root)
    if not units:
        print(f"{arguments[0]} names no source of {root}; build first", file=sys.stderr)
        return 2
    limit = LIMIT_SECONDS * float(os.environ.get("SLUICE_TIME_FACTOR", "1.0"))
    suspected = suspects(units, limit, changed_since(root, since) if since else None)
    if "--retime" in options and suspected:
        limit *= slowness(units)
    found = list(complaints(suspected, limit, processor_seconds if "--retime" in options else None))
    for line in found:
        print(line)
    slowest = sorted((u for u in units if u.joined == 1), key=lambda u: -u.seconds)[:5]
    print(f"{len(units)} units, {sum(u.seconds / u.joined for u in units):.0f} s in all; slowest alone: "
          + ", ".join(f"{u.source} {u.seconds:.1f} s" for u in slowest))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))

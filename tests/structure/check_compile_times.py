#!/usr/bin/env python3
"""No translation unit outside the listed bridges may take more than 5 s to compile.

Usage: check_compile_times.py BUILD/.ninja_log [--retime]
Run it after a cold build with ccache off (CCACHE_DISABLE=1).  Exempt are *_bridge.cpp, *.cu and tests of
tier 2 (those that see libtorch without the fence macros).  Of several entries for one output the fastest counts.
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
from dataclasses import dataclass

LIMIT_SECONDS = 5.0
REFERENCE_SECONDS = 1.2  # g++ 12 -fsyntax-only of one line that includes ATen/core/Tensor.h
FENCE = "TORCH_ASSERT_ONLY_METHOD_OPERATORS"
TORCH_API = "torch/csrc/api/include"


@dataclass
class Unit:
    source: str  # from the root
    command: str
    directory: str
    seconds: float

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


def read_units(log_path, root):
    build = os.path.dirname(os.path.abspath(log_path))
    times = read_log(log_path)
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as stream:
        commands = json.load(stream)
    units = []
    for entry in commands:
        source = os.path.relpath(entry["file"], root)
        output = re.search(r" -o (\S+)", entry["command"])
        generated = entry["file"].startswith(build + os.sep)
        if source.startswith("..") or generated or not output or output.group(1) not in times:
            continue
        units.append(Unit(source, entry["command"], entry["directory"],
                          times[output.group(1)]))
    return units


def processor_seconds(unit):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = dict(os.environ, CCACHE_DISABLE="1")
    # Not over the object: Ninja would take one newer than its own record for a changed one.
    command = re.sub(r" -o \S+", " -o /dev/null", unit.command, count=1)
    subprocess.run(command, shell=True, cwd=unit.directory, env=env, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


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


def complaints(units, limit, retime):
    """One line for each unit over the limit."""
    for unit in sorted(units, key=lambda u: u.source):
        if unit.exempt or unit.seconds <= limit:
            continue
        seconds = min(unit.seconds, retime(unit)) if retime else unit.seconds
        if seconds > limit:
            yield f"{unit.source}: {seconds:.1f} s, the limit is {limit:.1f} s; include less or split it"


def main(argv):
    arguments = [a for a in argv[1:] if a != "--retime"]
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
    units = read_units(arguments[0], root)
    if not units:
        print(f"{arguments[0]} names no source of {root}; build first", file=sys.stderr)
        return 2
    limit = LIMIT_SECONDS * float(os.environ.get("SLUICE_TIME_FACTOR", "1.0"))
    if "--retime" in argv and any(True for _ in complaints(units, limit, None)):
        limit *= slowness(units)
    found = list(complaints(units, limit, processor_seconds if "--retime" in argv else None))
    for line in found:
        print(line)
    slowest = sorted(units, key=lambda u: -u.seconds)[:5]
    print(f"{len(units)} units, {sum(u.seconds for u in units):.0f} s in all; slowest: "
          + ", ".join(f"{u.source} {u.seconds:.1f} s" for u in slowest))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))

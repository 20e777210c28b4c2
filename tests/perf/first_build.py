#!/usr/bin/env python3
"""CPU-seconds of the program's build from clean: the libraries' sources each alone, then together (SLUICE_UNITY).

Usage: first_build.py [--source CHECKOUT] [--torch DIR] [--unity ON|OFF] [--cuda AUTO|OFF] [--jobs N] [--edit SOURCE]

Builds in a temporary folder, without ccache.  CPU-seconds (user and system, of every process of the build) hardly
depend on what else the machine does; minutes do.  --unity: only this of the two.  --source: another checkout, such as
one of an earlier commit.  After each build SOURCE counts as edited, and the second line is the build after that.
"""
import argparse
import json
import os
import re
import resource
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def configure(build, args, unity):
    subprocess.run(["cmake", "--preset", "release", "-S", args.source, "-B", build, "-DSLUICE_TESTS=OFF",
                    f"-DSLUICE_UNITY={unity}", f"-DSLUICE_CUDA={args.cuda}", f"-DTORCH_ROOT={args.torch}"],
                   cwd=args.source, stdout=subprocess.DEVNULL, check=True)


def build_program(build, jobs):
    """(compiled objects, CPU-seconds, minutes)"""
    before, begin = cpu_seconds(), time.monotonic()
    done = subprocess.run(["ninja", "-C", build, "-j", str(jobs), "sluice_cli"], capture_output=True, text=True,
                          env=dict(os.environ, CCACHE_DISABLE="1"), check=False)
    if done.returncode != 0:
        raise SystemExit(done.stdout[-4000:])
    objects = len(re.findall(r"^\[\d+/\d+\] Building ", done.stdout, re.MULTILINE))
    return objects, cpu_seconds() - before, (time.monotonic() - begin) / 60


def object_of(build, source):
    """The object that SOURCE is compiled into, alone or with others."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as stream:
        entries = json.load(stream)
    for entry in entries:
        files = [entry["file"]]
        if "/Unity/" in entry["file"]:
            with open(entry["file"], encoding="utf-8") as stream:
                files = re.findall(r'^#include "(/[^"]+)"$', stream.read(), re.MULTILINE)
        if source in files:
            return os.path.join(entry["directory"], re.search(r" -o (\S+)", entry["command"]).group(1))
    raise SystemExit(f"the program is not built from {source}; name one of its .cpp files")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--source", default=ROOT)
    parser.add_argument("--torch", default=os.environ.get("SLUICE_TORCH_ROOT"))
    parser.add_argument("--unity", choices=["ON", "OFF"])
    parser.add_argument("--cuda", choices=["AUTO", "OFF"], default="OFF")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--edit", metavar="SOURCE", default="runtime/launch/supervisor.cpp")
    args = parser.parse_args()
    args.source = os.path.abspath(args.source)
    args.torch = args.torch or os.path.join(args.source, "third_party", "torch-2.11.0", "torch")
    for unity in [args.unity] if args.unity else ["OFF", "ON"]:
        with tempfile.TemporaryDirectory() as build:
            configure(build, args, unity)
            print("SLUICE_UNITY=%s: %d objects, %.0f CPU-seconds, %.1f min" % (unity, *build_program(build, args.jobs)),
                  flush=True)
            os.remove(object_of(build, os.path.join(args.source, args.edit)))
            print("  after an edit of %s: %d objects, %.1f CPU-seconds, %.2f min"
                  % (args.edit, *build_program(build, args.jobs)), flush=True)


if __name__ == "__main__":
    main()

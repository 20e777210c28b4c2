#!/usr/bin/env python3
"""Limits on sizes: lines of a source, files of a folder, private members and functions of a class.

Usage: source_sizes.py ROOT

An exception names what is larger, and how large it may be. Exceptions only shrink: what grows above its figure is a
violation, and so is an exception that is no longer needed.
"""
import os
import sys

import class_sizes

LINES, FILES, PRIVATE = 400, 45, 25

LONG_SOURCES = {
    "tests/offload/nvme_image_test.cpp": 468,
    "tests/parallel/host_test.cpp": 485,
    "tests/runtime/engine/resume_test.cpp": 409,
}
LARGE_FOLDERS = {}
WIDE_CLASSES = {
    "tests/runtime/program/replay.cpp Player": 44,
    "tests/runtime/program/tier_play.hpp TierPlay": 93,
}

ENDINGS = (".hpp", ".cpp", ".cu", ".cuh", ".h", ".js", ".py", ".sh", ".cmake")
NAMES = ("CMakeLists.txt", "sluice", "run")
SKIPPED = {"build", "third_party", "runs", "__pycache__", "golden", "corpus"}


def own_folders(root):
    """(path from the root, names of its files) of each folder with sources of ours."""
    for at, folders, names in os.walk(root):
        folders[:] = [f for f in folders
                      if f not in SKIPPED and (not f.startswith(".") or f == ".ci")]
        yield os.path.relpath(at, root), sorted(names)


def sizes(root):
    """Lines by source, files by folder, private declarations by class."""
    lines, files, private = {}, {}, {}
    for folder, names in own_folders(root):
        files[folder] = len(names)
        for name in names:
            if not name.endswith(ENDINGS) and name not in NAMES:
                continue
            path = os.path.normpath(os.path.join(folder, name))
            with open(os.path.join(root, path), encoding="utf-8") as stream:
                text = stream.read()
            lines[path] = len(text.splitlines())
            if name.endswith((".hpp", ".cpp")):
                for owner, count in class_sizes.private_counts(text):
                    private[f"{path} {owner}"] = max(count, private.get(f"{path} {owner}", 0))
    return lines, files, private


def complaints(found, limit, exceptions, what):
    for name in sorted(found.keys() | exceptions.keys()):
        size, allowed = found.get(name, 0), exceptions.get(name, limit)
        if size > allowed:
            yield f"{name}: {size} {what}, the limit is {allowed}; split it"
        elif name in exceptions and size <= limit:
            yield f"{name}: {size} {what}, within the limit of {limit}; take it out of tests/structure/source_sizes.py"


def violations(root):
    lines, files, private = sizes(root)
    return [*complaints(lines, LINES, LONG_SOURCES, "lines"),
            *complaints(files, FILES, LARGE_FOLDERS, "files"),
            *complaints(private, PRIVATE, WIDE_CLASSES, "private members and functions")]


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    found = violations(argv[1])
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))

#!/usr/bin/env python3
"""No file of ours is longer than 500 lines.  Usage: source_sizes.py ROOT"""
import os
import sys

LIMIT = 500
ENDINGS = (".hpp", ".cpp", ".cu", ".cuh", ".h", ".py", ".sh", ".cmake")
NAMES = ("CMakeLists.txt", "sluice", "run")
SKIPPED = {"build", "third_party", "runs", "__pycache__", "golden", "corpus"}


def own_files(root):
    for at, folders, names in os.walk(root):
        folders[:] = [f for f in folders
                      if f not in SKIPPED and (not f.startswith(".") or f == ".ci")]
        for name in names:
            if name.endswith(ENDINGS) or name in NAMES:
                yield os.path.join(at, name)


def too_long(root):
    found = []
    for path in own_files(root):
        with open(path, "rb") as stream:
            lines = sum(1 for _ in stream)
        if lines > LIMIT:
            found.append((os.path.relpath(path, root), lines))
    return sorted(found)


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    found = too_long(argv[1])
    for path, lines in found:
        print(f"{path}: {lines} lines, the limit is {LIMIT}; split it")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))

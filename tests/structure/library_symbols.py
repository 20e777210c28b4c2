#!/usr/bin/env python3
"""Checks that static libraries define nothing but names of namespace sluice: whoever links them gets no other name.

Usage: library_symbols.py LIBRARY... Prints one line for each other name; exit status 1 when there is any.
Inline functions and templates (weak symbols) of foreign headers do not count.
"""
import re
import subprocess
import sys

STRONG = "BDGRST"
OWN = re.compile(r"^_Z.*6sluice")  # functions, variables, and the tables and types of classes


def foreign_symbols(nm_output):
    """(archive member, name) of each strong global symbol outside namespace sluice."""
    member = ""
    for line in nm_output.splitlines():
        if line.endswith(":"):
            member = line[:-1]
            continue
        fields = line.split()
        if len(fields) == 3 and fields[1] in STRONG and not OWN.match(fields[2]):
            yield member, fields[2]


def main(argv):
    if len(argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    bad = 0
    for library in argv[1:]:
        done = subprocess.run(["nm", "-g", "--defined-only", library], capture_output=True, text=True, check=True)
        for member, name in foreign_symbols(done.stdout):
            print(f"{library}: {member}: {name} is not in namespace sluice")
            bad += 1
    print(f"{len(argv) - 1} libraries, {bad} names of others")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))

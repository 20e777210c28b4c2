#!/usr/bin/env python3
"""Checks that every ```cpp and ```cmake block of a page stands, as it is, in a file of a folder.

Usage: shown_code.py PAGE FOLDER. Prints the first line of each block that does not; exit status 1 when there is any.
"""
import os
import re
import sys

BLOCK = re.compile(r"^```(?:cpp|cmake)\n(.*?)^```$", re.M | re.S)


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    with open(argv[1], encoding="utf-8") as page:
        blocks = BLOCK.findall(page.read())
    sources = []
    for name in sorted(os.listdir(argv[2])):
        with open(os.path.join(argv[2], name), encoding="utf-8") as stream:
            sources.append(stream.read())
    strange = [block for block in blocks if not any(block in source for source in sources)]
    for block in strange:
        print(f"{argv[1]}: not code of {argv[2]}: the block that begins '{block.splitlines()[0]}'")
    print(f"{len(blocks)} blocks, {len(strange)} that nothing builds")
    return 1 if strange or not blocks else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))

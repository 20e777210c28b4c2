#!/usr/bin/env python3
"""Every relative link of a Markdown file leads to a file, and every #anchor to a heading.  Usage: links.py ROOT"""
import os
import re
import sys

SKIPPED = {"build", "third_party", "runs", "__pycache__", "corpus"}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`[^`]*`")
FOREIGN = re.compile(r"^[a-z]+:")
HEADING = re.compile(r"^#+ +(.*?) *$")


def documents(root):
    for at, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f not in SKIPPED and not f.startswith(".")]
        yield from (os.path.join(at, name) for name in names if name.endswith(".md"))


def prose_lines(path):
    """(number, line) of the lines that are no code."""
    fenced = False
    with open(path, encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            if line.startswith("```"):
                fenced = not fenced
            elif not fenced and not line.startswith("    "):
                yield number, line


def anchors(path):
    """The anchors of a document's headings, as hosting sites make them."""
    for _, line in prose_lines(path):
        heading = HEADING.match(line)
        if heading:
            yield re.sub(r"[^\w\- ]", "", heading.group(1).lower()).replace(" ", "-")


def broken(root):
    for path in sorted(documents(root)):
        for number, line in prose_lines(path):
            for target in LINK.findall(CODE.sub("`", line)):
                if FOREIGN.match(target):
                    continue
                name, _, anchor = target.partition("#")
                full = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
                where = f"{os.path.relpath(path, root)}:{number}: {target}"
                if not os.path.exists(full):
                    yield f"{where}: no such file"
                elif anchor and full.endswith(".md") and anchor not in anchors(full):
                    yield f"{where}: no such heading"


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    found = list(broken(argv[1]))
    for line in found:
        print(line)
    print(f"{len(list(documents(argv[1])))} documents, {len(found)} broken links")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))

#!/usr/bin/env python3
"""The objects of target checkheaders whose outcome may differ from that of an earlier commit.

Usage: changed_headers.py BUILD COMMIT, in the root of the sources. Prints Ninja's targets, one a line; a count goes to stderr.

A header stands alone as before if these did not change: the header, the files that it reaches by #include, its own source, and the build files.
A build file of the whole project that changed, or no such commit, makes the answer all objects.
"""
import json
import os
import re
import sys

from check_compile_times import changed_since

# How all headers are checked.
FOR_ALL = re.compile(r"cmake/.*|CMakeLists\.txt|CMakePresets\.json|sluice|\.ci/run|tests/structure/(changed_headers|check_compile_times)\.py")
# No name where a macro gives it. __has_include sees what appears and goes. Text in comments counts too: at worst a check too many.
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include(?:_next)?\b[ \t]*(?:["<]([^">\n]+)[">])?|__has_include\w*\s*\(\s*["<]([^">\n]+)[">]', re.M)


def checked_headers(build):
    """Each header of target checkheaders, with its object."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as stream:
        commands = json.load(stream)
    folder = os.path.join(os.path.abspath(build), "check_headers")
    return {os.path.basename(e["file"])[:-len(".cpp")].replace("__", "/"): re.search(r" -o (\S+)", e["command"]).group(1)
            for e in commands if os.path.dirname(e["file"]) == folder}


def names_included(path):
    with open(path, encoding="utf-8") as stream:
        return {match.group(1) or match.group(2) for match in INCLUDE.finditer(stream.read())}


class Changes:
    def __init__(self, changed):
        self.changed = changed
        # Every name by which a changed file can be included, from whichever folder: also a removed file, and one that hides another.
        self.names = {path[at:] for path in changed for at in [0, *(m.end() for m in re.finditer("/", path))]}
        self.folders = tuple(os.path.dirname(path) + "/" for path in changed if os.path.basename(path) == "CMakeLists.txt")
        self.included = {}

    def reach(self, path):
        """Whether `path` includes a changed file, itself or by others."""
        seen, rest = {path}, [path]
        while rest:
            at = rest.pop()
            if at not in self.included:
                self.included[at] = names_included(at)
            names = self.included[at]
            if None in names or names & self.names:
                return True
            found = {own for name in names for own in (name, os.path.normpath(os.path.join(os.path.dirname(at), name)))
                     if os.path.isfile(own) and not os.path.isabs(own)}
            rest += found - seen
            seen |= found
        return False

    def concern(self, header):
        # Before, its own source may have been its check (CheckHeaders.cmake), if the folder's CMakeLists.txt named this source.
        source = re.sub(r"\.hpp$", ".cpp", header)
        return header in self.changed or source in self.changed or header.startswith(self.folders) or self.reach(header)


def main():
    build, commit = sys.argv[1:]
    headers = checked_headers(build)
    changed = changed_since(".", commit)
    if changed is None or any(FOR_ALL.fullmatch(path) for path in changed):
        chosen = list(headers)
    else:
        changes = Changes(changed)
        chosen = [header for header in headers if changes.concern(header)]
    print(f"{len(chosen)} of {len(headers)} headers", file=sys.stderr)
    for header in sorted(chosen):
        print(headers[header])
    return 0


if __name__ == "__main__":
    sys.exit(main())

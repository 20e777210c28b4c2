#!/usr/bin/env python3
"""Rewrites what g++ cannot parse in a source of CUDA kernels: launches, and declarations of shared memory.

Usage: launches.py SOURCE OUT. Lines keep their numbers, and messages name SOURCE.
"""
import pathlib
import re
import sys

SHARED = re.compile(r"__shared__\s+([\w:<>, ]+?)\s+(\w+)((?:\[[^\]]+\])*);")
NAME = re.compile(r"[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*$")


def fail(text, at, why):
    raise ValueError(f"line {text.count(chr(10), 0, at) + 1}: {why}")


def kernel_before(text, at):
    """The beginnings of the kernel's name and of `<<<` with the blanks before it; a name may have template arguments."""
    end = len(text[:at].rstrip())
    begin = end
    if text[end - 1] == ">":
        depth = 0
        while begin > 0:
            begin -= 1
            depth += (text[begin] == ">") - (text[begin] == "<")
            if depth == 0:
                break
    name = NAME.search(text, 0, begin)
    if not name:
        fail(text, at, "a launch without the kernel's name")
    return name.start(), begin, end


def with_launches(text):
    """Blanks between name and configuration stay, so lines keep their numbers."""
    out, done = [], 0
    while (at := text.find("<<<", done)) >= 0:
        begin, arguments, end = kernel_before(text, at)
        close = text.find(">>>", at)
        if begin < done or close < 0:
            fail(text, at, "a launch that does not end")
        name = text[begin:arguments]
        out += [text[done:begin], f'::emulated_gpu::kernel("{name}", {text[begin:end]})', text[end:at], "(",
                text[at + 3:close], ")"]
        done = close + 3
    return "".join(out) + text[done:]


def with_shared(text):
    return SHARED.sub(r"auto& \2 = ::emulated_gpu::shared<\1\3>([] {});", text)


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    source, out = map(pathlib.Path, argv[1:])
    try:
        text = with_shared(with_launches(source.read_text(encoding="utf-8")))
    except ValueError as error:
        print(f"{source}, {error}", file=sys.stderr)
        return 1
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(f'#line 1 "{source}"\n{text}', encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))

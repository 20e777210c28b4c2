#!/usr/bin/env python3
"""Checks every #include of the sources against the arrows of the layout (ARCHITECTURE.md, Rooms).

Usage: include_direction.py ROOT. Prints one line for each violation; exit status 1 when there is any.
The rules are the tables below and nothing else; a new folder without a row is itself a violation.
"""
import os
import re
import sys

SOURCE_ENDINGS = (".hpp", ".cpp", ".cu", ".cuh", ".h", ".inc")
FOLDERS = ("base", "kernels", "offload", "parallel", "zero", "runtime", "configs", "tests", "examples")

# Layer of a file = the first prefix that fits.
LAYERS = (
    ("base/", "base"),
    ("kernels/", "kernels"),
    ("offload/", "offload"),
    ("parallel/comm/", "comm"),
    ("parallel/", "parallel"),
    ("zero/", "zero"),
    ("runtime/cli/", "cli"),
    ("runtime/", "runtime"),
    ("configs/", "configs"),
    ("tests/", "tests"),
    ("examples/", "examples"),
)

ANYTHING = {layer for _, layer in LAYERS}
MAY_INCLUDE = {
    "base": {"base"},
    "kernels": {"base", "kernels"},
    "comm": {"base", "kernels", "comm"},
    "parallel": {"base", "kernels", "comm", "parallel"},
    "offload": {"base", "kernels", "offload"},
    "zero": {"base", "kernels", "offload", "comm", "zero"},
    "runtime": {"base", "kernels", "offload", "comm", "parallel", "zero", "runtime"},
    "configs": {"base", "configs"},  # and the option headers of every folder
    "cli": ANYTHING,
    "tests": ANYTHING,
    "examples": ANYTHING - {"tests"},
}

# The rooms of runtime/. A room includes itself, the rooms in its row, and option headers of every room. An arrow that
# no source needs is a violation too, so the table says what is, and only what is.
ROOMS = {
    "program": set(),                  # integers: knows no room
    "observe": set(),                  # log, metrics, trace: takes values
    "page": set(),                     # template and scripts of the HTML pages
    "report": {"page"},                # reads the files of runs
    "data": set(),                     # text to rows of tokens
    "bench": set(),                    # reads the files of runs that it starts
    "launch": {"observe"},             # logs and failure reports are files, written by observe's file_io
    "generate": {"data"},              # tokens
    "model": {"program"},              # a unit's profile is a UnitMemory of the step's shape
    "checkpoint": {"model"},           # names and shapes of the model's table
    "engine": {"checkpoint",           # ranges of parameters that a shard covers
               "data",                 # rows of a batch
               "model", "program"},
    "plan": {"engine",                 # its options and layout: what is planned is what runs
             "model", "program",
             "page"},                  # of plan --html
    "doctor": {"bench",                # the optimizer's and the collectives' rates
               "engine",               # copies and registered pages of the CUDA module
               "launch",               # the limit on processor time
               "model",                # blocks, which are timed
               "plan"},                # the rates file that it writes
    "run": {"checkpoint", "data", "engine", "generate", "launch", "model", "observe",
            "page",                    # of a memory snapshot
            "plan",                    # the plan beside what is measured
            "program"},
}

TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
CUDA = re.compile(r"^(cuda|cublas|cudnn|cusparse|curand|nccl|nvtx|cooperative_groups|cub/|thrust/)")
CLOCK_OR_THREAD = {
    "chrono", "ctime", "time.h", "sys/time.h", "thread", "mutex", "shared_mutex",
    "condition_variable", "future", "stop_token", "semaphore", "latch", "barrier", "pthread.h",
}
YAML = re.compile(r"^yaml-cpp/")

# These know nothing of libtorch, in any file.
TORCH_FREE = ("kernels/", "configs/", "offload/", "runtime/data/", "runtime/observe/",
              "runtime/launch/", "runtime/page/", "runtime/report/")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def layer_of(path):
    return next((layer for prefix, layer in LAYERS if path.startswith(prefix)), None)


def room_of(path):
    """The room of runtime/ that a file is in; None outside, and in runtime/cli, which is a layer of its own."""
    parts = path.split("/")
    return parts[1] if layer_of(path) == "runtime" and len(parts) > 2 else None


def is_options(path):
    return path.endswith("_options.hpp")


def is_pure(path):
    """Plans and the step program: integers and structs, so that the dry run is the truth."""
    if path.startswith(("tests/", "examples/")):
        return False
    name = os.path.basename(path)
    if re.search(r"_plan\.[a-z]+$", name):
        return True
    return path.startswith("runtime/program/") and not name.startswith("executor")


def is_torch_free(path):
    return is_pure(path) or is_options(path) or path.startswith(TORCH_FREE)


def strip_comments(text):
    """Blanks block comments, keeping the lines, so that an include in one does not count."""
    return re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.S)


def includes_of(text):
    for number, line in enumerate(strip_comments(text).split("\n"), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) == '"', match.group(2)


def forbidden_foreign(path, header):
    """Why `path` may not include the foreign header `header`, or None."""
    if YAML.match(header) and layer_of(path) not in ("configs", "tests"):
        return "only configs/ knows yaml-cpp"
    if path.endswith((".cu", ".cuh")) and TORCH.match(header):
        return ".cu files see plain pointers and structs, never libtorch"
    if is_torch_free(path) and TORCH.match(header):
        return "this file must compile without libtorch"
    if is_pure(path) and CUDA.match(header):
        return "plans and the step program know no CUDA"
    if is_pure(path) and header in CLOCK_OR_THREAD:
        return "plans and the step program know no clock and no thread"
    return None


def forbidden_own(path, header):
    """Why `path` may not include the project's own `header`, or None."""
    source, target = layer_of(path), layer_of(header)
    if target is None:
        return "the folder has no layer; add it to tests/structure/include_direction.py"
    if is_options(path) and not (target == "base" or is_options(header)):
        return "an option header includes only base and other option headers"
    if source == target == "runtime":
        return forbidden_room(path, header)
    if target in MAY_INCLUDE[source]:
        return None
    if source == "configs" and is_options(header):
        return None
    return f"{source} may not include {target}"


def forbidden_room(path, header):
    """Why `path` of a room of runtime/ may not include `header` of another one, or None."""
    source, target = room_of(path), room_of(header)
    for room in (source, target):
        if room not in ROOMS:
            return f"runtime/{room} is no room; add it to tests/structure/include_direction.py"
    if source == target or is_options(header) or target in ROOMS[source]:
        return None
    return f"runtime/{source} may not include runtime/{target}"


def unused_arrows(files):
    """Arrows of ROOMS that no include needs."""
    needed = {(room_of(path), room_of(header)) for path, includes in files.items()
              for _, _, header in includes if header in files and not is_options(header)}
    present = {room_of(path) for path in files}
    for source, targets in ROOMS.items():
        for target in sorted(targets if source in present else ()):
            if (source, target) not in needed:
                yield (f"tests/structure/include_direction.py: no file of runtime/{source} includes runtime/{target}; "
                       "take the arrow out of ROOMS")


def foreign_closure(path, files, seen):
    """Foreign headers that come in through own headers, each with the own header that names it."""
    for _, quoted, header in files.get(path, ()):
        if header in files:
            if header not in seen:
                seen.add(header)
                yield from foreign_closure(header, files, seen)
        elif not quoted:
            yield path, header


def check_file(path, files):
    for number, quoted, header in files[path]:
        where = f"{path}:{number}: {header}"
        # An example is copied and built elsewhere: its own headers are those beside it.
        beside = f"{os.path.dirname(path)}/{header}"
        if quoted and path.startswith("examples/") and beside in files:
            header = beside
        own = header in files
        if quoted and not own:
            yield f"{where}: not a file of the project; write own includes from the root"
        elif own and not quoted:
            yield f'{where}: own headers are included with "quotes"'
        reason = forbidden_own(path, header) if own else forbidden_foreign(path, header)
        if reason:
            yield f"{where}: {reason}"
    if not (is_torch_free(path) or path.endswith(".cu")):
        return
    for via, header in foreign_closure(path, files, {path}):
        if via != path and TORCH.match(header):
            yield f"{path}: brings in {header} through {via}: this file must compile without libtorch"


def read_tree(root):
    """path from the root -> list of (line, quoted, header)."""
    files = {}
    for folder in FOLDERS:
        for at, _, names in os.walk(os.path.join(root, folder)):
            for name in names:
                if name.endswith(SOURCE_ENDINGS):
                    full = os.path.join(at, name)
                    with open(full, encoding="utf-8") as stream:
                        files[os.path.relpath(full, root)] = list(includes_of(stream.read()))
    return files


def violations(files):
    return [line for path in sorted(files) for line in check_file(path, files)]


def main(argv):
    if len(argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    files = read_tree(argv[1])
    if not files:
        print(f"no sources found under {argv[1]}", file=sys.stderr)
        return 2
    found = violations(files) + list(unused_arrows(files))
    for line in found:
        print(line)
    print(f"{len(files)} files, {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))

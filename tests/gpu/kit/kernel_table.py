"""The kernels of a run's last step from the file of kernel_times.cpp: python3 kernel_table.py FILE."""
import collections
import re
import statistics
import subprocess
import sys

APART_NS = 5_000_000  # more than the pauses between the updates of one step


def read(path):
    """[begin, ns, stream, name] of each record, by begin; names demangled where c++filt is installed."""
    records = []
    with open(path, encoding="ascii") as lines:
        for line in lines:
            begin, ns, stream, _, name = line.rstrip("\n").split(" ", 4)
            records.append([int(begin), int(ns), int(stream), name])
    try:
        text = subprocess.run(["c++filt"], input="\n".join(r[3] for r in records), capture_output=True, text=True, check=True).stdout
        for record, name in zip(records, text.split("\n")):
            record[3] = re.sub(r"sluice::cuda::|\(anonymous namespace\)::|^void ", "", name)
    except (OSError, subprocess.CalledProcessError):
        pass
    return sorted(records)


def ends_of_steps(records):
    """Where the last update of each step ends."""
    ends = []
    for begin, ns, _, name in records:
        if not name.startswith("update_kernel"):
            continue
        if ends and begin - ends[-1] < APART_NS:
            ends.pop()
        ends.append(begin + ns)
    return ends


def table(path):
    """Lines: the last step's time, then each kernel's share, calls and median, those first that took longest."""
    records = read(path)
    ends = ends_of_steps(records)
    if len(ends) < 2:
        return [f"{path}: fewer than two steps"]
    begin, end = ends[-2:]
    times = collections.defaultdict(list)
    for first, ns, _, name in records:
        if begin <= first and first + ns <= end:
            times[name.split("(")[0][:100]].append(ns)
    lines = [f"a step of {(end - begin) / 1e6:.1f} ms, kernels {sum(map(sum, times.values())) / 1e6:.1f} ms"]
    for name, all_ns in sorted(times.items(), key=lambda item: -sum(item[1])):
        lines.append(f"{sum(all_ns) / 1e6:8.2f} ms {len(all_ns):5d} x {statistics.median(all_ns) / 1e3:8.1f} us  {name}")
    return lines


if __name__ == "__main__":
    print(*table(sys.argv[1]), sep="\n")

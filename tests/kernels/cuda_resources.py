#!/usr/bin/env python3
"""What the kernels of transformer blocks need of a GPU, by ptxas and PTX: needs nvcc and no GPU.

Usage: cuda_resources.py NVCC SOURCE_DIR ARCHITECTURES FLAG... Architectures are numbers with commas between, such as 80+86,120. With a plus
between them their PTX is the same, and made once: no source or header tells these architectures apart.
A kernel may not spill registers, use a stack or add by atomics, and reads and writes device memory 16 bytes at a time. Kernels with few warps
issue several such loads before they compute with the first.
"""
import os
import re
import subprocess
import sys
import tempfile

# The kernels of each source. column_total adds parts in fp32, one column a thread: its loads are 4 bytes of 32 neighbours. token_order
# reads 8-byte numbers of rows on any multiple of 8 bytes, one token a lane.
SOURCES = {"activation": 19, "attention": 9, "branch": 6, "embedding": 7, "entropy": 4, "fp8": 2, "norm": 55}
NARROW = ("column_total_kernel", "token_order_kernel")
# Of each of these, loads of 16 bytes without arithmetic between them. PTX says little of sums of packs of fp32: ptxas puts their loads together.
# Norms that hold rows (Li8, Li16: packs of a lane) load one, two with a residual, or three.
IN_FLIGHT = {"column_parts_kernelI(?!f)": 16, "norm_parts_kernelI(?!f)": 16, "gelu_gradient_parts_kernelI(?!f)": 4, "join_rows_kernelI(?!f)": 16, "entropy_kernel": 4, "entropy_parts_kernel": 4, "fp8_parts_kernel": 4,
             "norm_forward_kernel.*Li8E": 8, "norm_forward_kernel.*Li16E": 16, "branch_norm_kernel.*Li8E": 16, "norm_input_kernel.*Li8E": 24}
WIDE_LOAD = re.compile(r"\bld\.global(\.nc)?\.v4\.[buf]32\b")
ARITHMETIC = re.compile(r"\b(add|sub|mul|fma)\.rn\.f32\b|\bvmax|\bmax\.|\bsetp\.\w+\.f32\b")
REPORT = re.compile(r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", re.S)


def run_nvcc(tools, architecture, *arguments):
    nvcc, _, flags = tools
    command = [nvcc, "-O3", f"-arch={architecture}", *flags, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stderr


def compile_to_ptx(name, tools, architecture, out):
    source = tools[1]
    run_nvcc(tools, f"compute_{architecture}", "-std=c++17", f"-I{source}", "-ptx", os.path.join(source, f"kernels/cuda/{name}.cu"), "-o", out)


def spill_faults(name, count, tools, architecture, ptx):
    kernels = REPORT.findall(run_nvcc(tools, f"sm_{architecture}", "-Xptxas", "-v", "-cubin", ptx, "-o", ptx + ".cubin"))
    if len(kernels) != count:
        yield f"{name}: {len(kernels)} kernels instead of {count}"
    for kernel, *sizes in kernels:
        if any(int(size) for size in sizes):
            yield f"{kernel}: stack frame, spill stores and spill loads of {', '.join(sizes)} bytes"


def loads_in_flight(kernel):
    most = now = 0
    for line in kernel.splitlines():
        now = 0 if ARITHMETIC.search(line) else now + bool(WIDE_LOAD.search(line))
        most = max(most, now)
    return most


def access_faults(ptx):
    with open(ptx, encoding="utf-8") as file:
        text = file.read()
    for kernel in re.split(r"^\.visible \.entry |^\.entry ", text, flags=re.M)[1:]:
        called = kernel[:kernel.index("(")]
        if re.search(r"\b(atom|red)\.", kernel):
            yield f"{called}: adds by atomics, so sums have no order"
        if any(narrow in called for narrow in NARROW):
            continue
        if not WIDE_LOAD.search(kernel):
            yield f"{called}: no load of 16 bytes"
        for part, count in IN_FLIGHT.items():
            if re.search(part, called) and loads_in_flight(kernel) < count:
                yield f"{called}: {loads_in_flight(kernel)} loads in flight, not {count}"
        # Cross entropy and attention read four numbers of fp32 and write them in 16 bits, on sm_120 as one number of 64.
        quads = "entropy" in called or "score_" in called
        store = r"\bst\.global\.(v4\.([buf]32|[bu]16)|u64)\b" if quads else r"\bst\.global\.v4\.[buf]32\b"
        if "parts_kernel" not in called and not re.search(store, kernel):
            yield f"{called}: no store of a whole pack"


def main():
    nvcc, source, architectures, *flags = sys.argv[1:]
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        ptx = os.path.join(folder, "a.ptx")
        tools = (nvcc, source, flags)
        for alike in architectures.split(","):
            alike = alike.split("+")
            for name, count in SOURCES.items():
                compile_to_ptx(name, tools, alike[0], ptx)
                faults += [f"compute_{alike[0]}: {fault}" for fault in access_faults(ptx)]
                for architecture in alike:
                    faults += [f"sm_{architecture}: {fault}" for fault in spill_faults(name, count, tools, architecture, ptx)]
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

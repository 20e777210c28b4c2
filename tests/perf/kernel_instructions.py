#!/usr/bin/env python3
"""Instructions of CUDA kernels of blocks for bf16: kernels whose arithmetic, not their memory, limits them.

Usage: kernel_instructions.py NVCC NVDISASM [--architecture 90]. Needs no GPU. PyPI's triton has an nvdisasm.
"Whole packs": the shortest way through the kernel that reads and writes the named number of packs of 8 elements and
enters no slow division. "All": every instruction of a kernel that unrolls a row of at most 2048 elements.
"""
import argparse
import heapq
import os
import re
import subprocess
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Name, file, mangled name, accesses of 16 bytes before and behind which instructions are counted, elements between them.
LOOPS = (
    ("GELU", "activation", "11gelu_kernelI13__nv_bfloat16", 0, 2, 8),
    ("its gradient, with sums over rows", "activation", "gelu_gradient_parts_kernelI13__nv_bfloat16", 8, 16, 16),
    ("SwiGLU", "activation", "13swiglu_kernelI13__nv_bfloat16", 0, 3, 8),
    ("its gradient", "activation", "22swiglu_gradient_kernelI13__nv_bfloat16", 0, 6, 8),
)
ROWS = (
    ("LayerNorm", "norm", "norm_forward_kernelI13__nv_bfloat16Lb1ELi8"),
    ("RMSNorm", "norm", "norm_forward_kernelI13__nv_bfloat16Lb0ELi8"),
    ("LayerNorm, gradient of the input", "norm", "norm_input_kernelI13__nv_bfloat16Lb1ELi8"),
    ("RMSNorm, gradient of the input", "norm", "norm_input_kernelI13__nv_bfloat16Lb0ELi8"),
    ("end of a branch and LayerNorm", "norm", "branch_norm_kernelI13__nv_bfloat16Lb1ELi8"),
)
ACCESS = re.compile(r"\b(LDG|STG)\.E\.128\b")
SLOW = re.compile(r"\b((LDG|STG)\.E\.U16|FCHK|CALL)\b")  # single elements, slow divisions
BRANCH = re.compile(r"\bBRA\s+(!?U?P\d+,\s*)?`\((\.L_x_\d+)\)")


class Kernel:
    def __init__(self, text):
        self.instructions, self.labels = [], {}
        for line in text.split("\n"):
            if instruction := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line):
                self.instructions.append(instruction.group(1))
            elif label := re.match(r"(\.L_x_\d+):", line):
                self.labels[label.group(1)] = len(self.instructions)

    def after(self, at):
        """Places that may follow the instruction."""
        text = self.instructions[at]
        branch = BRANCH.search(text)
        if branch is None or text.startswith("@") or branch.group(1):
            yield at + 1
        if branch:
            yield self.labels[branch.group(2)]

    def shortest(self, accesses):
        """Instructions of the shortest way to the end with at least so many accesses of 16 bytes."""
        best, heap = {(0, 0): 0}, [(0, 0, 0)]
        while heap:
            count, at, seen = heapq.heappop(heap)
            text = self.instructions[at]
            if SLOW.search(text):
                continue
            if text == "EXIT" and seen == accesses:
                return count + 1
            seen = min(accesses, seen + bool(ACCESS.search(text)))
            for place in () if text == "EXIT" else self.after(at):
                if count + 1 < best.get((place, seen), 1 << 30):
                    best[place, seen] = count + 1
                    heapq.heappush(heap, (count + 1, place, seen))
        raise RuntimeError(f"no way through the kernel has {accesses} accesses of 16 bytes")


def disassembled(file, args, folder):
    cubin = os.path.join(folder, file + ".cubin")
    subprocess.run([args.nvcc, "-std=c++17", "-O3", "-fmad=false", f"-arch=sm_{args.architecture}", f"-I{SOURCE}", "-cubin",
                    os.path.join(SOURCE, f"kernels/cuda/{file}.cu"), "-o", cubin], check=True)
    text = subprocess.run([args.nvdisasm, "-c", cubin], check=True, capture_output=True, text=True).stdout
    return text.split("//--------------------- .text.")[1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("nvcc")
    parser.add_argument("nvdisasm")
    parser.add_argument("--architecture", default="90")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kernels = {file: disassembled(file, args, folder) for file in ("activation", "norm")}

    def kernel(file, name):
        return Kernel(next(text for text in kernels[file] if name in text.split("\n", 1)[0]))

    print("| whole packs | instructions an element |\n| --- | --- |")
    for name, file, mangled, before, behind, elements in LOOPS:
        of = kernel(file, mangled)
        count = of.shortest(behind) - (of.shortest(before) if before else 0)
        print(f"| {name} | {count / elements:.1f} |")
    print("\n| all | instructions |\n| --- | --- |")
    for name, file, mangled in ROWS:
        print(f"| {name} | {len(kernel(file, mangled).instructions)} |")


if __name__ == "__main__":
    main()

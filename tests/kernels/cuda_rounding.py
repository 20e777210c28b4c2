#!/usr/bin/env python3
"""What the CUDA updates round, and that they move whole elements, by their PTX: needs nvcc and no GPU.

Usage: cuda_rounding.py NVCC SOURCE_DIR ARCHITECTURE FLAG... The flags are those the library is compiled with.
Each copy of the loop's body (the compiler may unroll it) has a known number of products; everything else is counted against that.
"""
import collections
import os
import re
import subprocess
import sys
import tempfile

INSTRUCTION = re.compile(r"^\s*(?:@!?%\w+\s+)?([a-z][\w.]*\.f32[\w.]*)\s", re.M)
# Of one element. AdamW: products of g, of (1-b1) g, of (1-b2) g and of that with g, of p with the decay; fused: m, v,
# the denominator, p, and g in the bodies of Adam that is not decoupled, to which the loop may branch once. Lion: products of g,
# of m with both betas, of p with the decay; fused: the mix, m, p. SGD: products of g and of m; fused: g, p; the sum m.
# A number, or the least and the most of a body.
WANTED = {
    "adamw": {"mul.rn.f32": 5, "fma.rn.f32": (4, 5), "sqrt.rn.f32": 1, "div.rn.f32": 1},
    "lion": {"mul.rn.f32": 4, "fma.rn.f32": 3},
    "sgd": {"mul.rn.f32": 2, "fma.rn.f32": 2, "add.rn.f32": 1},
}
# Loads, stores, moves, comparisons, selections, and conversions of 16-bit types, which are exact or rounded to nearest,
# do no arithmetic.
HARMLESS = re.compile(r"(ld|st|mov|setp|selp|cvt\.f32\.(f16|bf16)|cvt\.rn\.(f16|bf16)\.f32)\b")
BYTES = re.compile(r"\b(ld|st)\.global\.[bus]8\b")  # of an element whose alignment the compiler does not know
TYPES = 12 + 8  # of gradients x of weights, and of weights with remainders; with moments in bf16 no gradients in fp16


def ptx_of(optimizer, nvcc, source, architecture, flags):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "update.ptx")
        command = [nvcc, "-std=c++17", "-O3", f"-arch=compute_{architecture}", f"-I{source}", *flags, "-ptx",
                   os.path.join(source, f"kernels/cuda/{optimizer}.cu"), "-o", out]
        subprocess.run(command, check=True)
        with open(out, encoding="utf-8") as file:
            return file.read()


def faults_of(kernel, of_element):
    counts = collections.Counter(name for name in INSTRUCTION.findall(kernel) if not HARMLESS.match(name))
    bodies = counts["mul.rn.f32"] // of_element["mul.rn.f32"]
    least, most = ({name: bodies * (number[end] if isinstance(number, tuple) else number) for name, number in of_element.items()}
                   for end in (0, 1))
    fits = counts.keys() == least.keys() and all(least[name] <= counts[name] <= most[name] for name in least)
    if bodies == 0 or not fits:
        yield f"computes {dict(counts)}, and {bodies} bodies should compute {least} to {most}"
    if BYTES.search(kernel):
        yield "loads or stores single bytes"


def main():
    nvcc, source, architecture, *flags = sys.argv[1:]
    faults = []
    for optimizer, of_element in WANTED.items():
        ptx = ptx_of(optimizer, nvcc, source, architecture, flags)
        kernels = re.split(r"^\.visible \.entry |^\.entry ", ptx, flags=re.M)[1:]
        for i, kernel in enumerate(kernels):
            faults += [f"{optimizer}, kernel {i}: {fault}" for fault in faults_of(kernel, of_element)]
        if len(kernels) != TYPES:
            faults.append(f"{optimizer}: {len(kernels)} kernels instead of {TYPES}")
    for fault in faults:
        print(fault)
    print(f"{len(WANTED)} optimizers looked at, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

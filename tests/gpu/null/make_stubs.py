#!/usr/bin/env python3
"""Writes the sources of the null GPU's stubs: a function for each name that libtorch's CUDA half takes from a library.

Usage: make_stubs.py TORCH_LIB OUT

TORCH_LIB is lib/ of a libtorch with CUDA; NVIDIA's libraries are not needed.  For each library of LIBRARIES, OUT gets
NAME.cpp and NAME.map, the version script.  A stub counts its call and returns 0; the bodies beside this script replace stubs,
which are weak.
"""
import mmap
import pathlib
import re
import subprocess
import sys

# Target, what names its symbols: the version that libtorch asks for, or the prefix of names without version.
VERSIONED = {
    "cudart": "libcudart.so.13",
    "cublas": "libcublas.so.13",
    "cublasLt": "libcublasLt.so.13",
    "cudnn": "libcudnn.so.9",
    "cufft": "libcufft.so.12",
    "cusparse": "libcusparse.so.12",
    "cusolver": "libcusolver.so.12",
    "cupti": "libcupti.so.13",
    "nvshmem_host": "NVSHMEM",
}
PREFIXED = {"nccl": "nccl", "cusparseLt": "cusparseLt", "nvshmem_host": "nvshmem", "curand": "curand", "cufile": "cuFile"}
LIBRARIES = [*VERSIONED, "nccl", "cusparseLt", "curand", "cufile", "cuda"]

# Names that libtorch or nvcc's code finds otherwise than by linking, and those that only libtorch_python links: with them
# Python programs run on the null GPU (tests/gpu/peers).
ALSO = {
    "cudart": ["__cudaInitModule", "cudaEventRecordWithFlags", "cudaFreeHost", "cudaIpcGetEventHandle", "cudaIpcOpenEventHandle",
               "cudaLaunchHostFunc", "cudaLaunchKernel", "cudaMemcpy", "cudaProfilerStart", "cudaProfilerStop",
               "cudaStreamCreate", "cudaStreamGetPriority"],
    "cudnn": ["cudnnGetProperty"],
    "cufile": ["cuFileBufDeregister", "cuFileBufRegister", "cuFileHandleDeregister", "cuFileHandleRegister", "cuFileRead",
               "cuFileWrite"],
}
DRIVER_NAME = re.compile(
    rb"\0(cu(?:Ctx|Device|Mem|Get|Green|Func|Launch|Link|Module|Multicast|Pointer|Stream|Tensor|Event)[A-Za-z0-9_]+)(?=\0)")


def needed(libraries):
    """The undefined names of `libraries`, as "name" or "name@version"."""
    text = subprocess.run(["nm", "-D", "--undefined-only", *map(str, libraries)], check=True, capture_output=True,
                          text=True).stdout
    return {line.split()[1] for line in text.splitlines() if len(line.split()) == 2}


def driver_names(library):
    """libtorch looks the driver's functions up by name while it runs: the names are strings of the library."""
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return {name.decode() for name in DRIVER_NAME.findall(data)}


def names_of(target, symbols, torch_lib):
    names = set(ALSO.get(target, ()))
    if target in VERSIONED:
        names |= {s.split("@")[0] for s in symbols if s.endswith("@" + VERSIONED[target])}
    if target in PREFIXED:
        names |= {s for s in symbols if re.fullmatch(PREFIXED[target] + "[A-Za-z0-9_]*", s)}
    if target == "cuda":
        names |= {"cuInit", "cuDeviceGetCount"}
        for library in ("libc10_cuda.so", "libtorch_cuda.so"):
            names |= driver_names(torch_lib / library)
    return sorted(names)


def source(names):
    lines = ["// Written by tests/gpu/null/make_stubs.py.",
             "namespace null_gpu { void count_stub(const char* name); }",
             'extern "C" {']
    lines += [f'__attribute__((weak)) int {name}() {{ null_gpu::count_stub("{name}"); return 0; }}' for name in names]
    return "\n".join([*lines, "}", ""])


def main(argv):
    if len(argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    torch_lib, out = pathlib.Path(argv[1]), pathlib.Path(argv[2])
    libraries = [lib for lib in sorted(torch_lib.glob("lib*.so")) if lib.name != "libtorch.so"]
    if not (torch_lib / "libtorch_cuda.so").is_file():
        print(f"{torch_lib} has no libtorch_cuda.so; name lib/ of a libtorch with CUDA", file=sys.stderr)
        return 2
    symbols = needed(libraries)
    out.mkdir(parents=True, exist_ok=True)
    for target in LIBRARIES:
        (out / f"{target}.cpp").write_text(source(names_of(target, symbols, torch_lib)), encoding="ascii")
        version = VERSIONED.get(target, "")
        (out / f"{target}.map").write_text(f"{version} {{ global: *; }};\n", encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))

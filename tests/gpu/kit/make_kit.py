#!/usr/bin/env python3
"""Packs a build for a machine that has a GPU and PyTorch 2.11, but no compiler and none of the build's packages.

Usage: make_kit.py [--build FOLDER] OUT

OUT gets kit.tar.xz (the program, its CUDA module, the tests that want a GPU, the shared libraries that such a machine lacks),
run_kit.py with its modules, and peers/, which trains PyTorch, FSDP2 and DeepSpeed beside.  Nothing is compiled on the other machine.  Build first:

    ./sluice build sluice_cli sluice_test_cuda_kernels sluice_test_engine_gpu_tiers sluice_test_engine_device_access \\
        sluice_test_runtime_doctor sluice_test_parallel
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

from programs import build_kernel_times

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
SCRIPTS = ("run_kit.py", "correctness.py", "measurements.py", "programs.py", "results.py", "kernel_table.py", "lanes.py")
TESTS = ("cuda_kernels", "engine_gpu_tiers", "engine_device_access", "runtime_doctor", "parallel")

# What PyTorch's wheels bring, and what every system with glibc and a C++ runtime has.
FROM_TORCH = re.compile(r"lib(torch|c10|cu(dart|pti|blas|dnn|fft|file|rand|solver|sparse)|nccl|nvrtc|nvJitLink|nvshmem|gomp)")
FROM_SYSTEM = re.compile(r"(ld-linux-x86-64|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s))\.so")


class Missing(Exception):
    pass


def needed(path):
    text = subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", text)


def library_paths():
    """The loader's libraries of this machine by name."""
    text = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    return {name: path for name, path in reversed(re.findall(r"^\s*(\S+) \(.*x86-64.*\) => (\S+)$", text, re.M))}


def programs(build):
    yield build / "runtime/cli/sluice"
    yield build / "libsluice_cuda.so"
    for test in TESTS:
        found = sorted((build / "tests").rglob(f"sluice_test_{test}"))
        yield found[0] if found else build / "tests" / f"sluice_test_{test}"


def copy_programs(build, bin_folder):
    for program in programs(build):
        if not program.is_file():
            raise Missing(f"there is no {program}; build it (the head of this script has the line), with nvcc installed")
        shutil.copy(program, bin_folder)


def copy_libraries(bin_folder, lib_folder):
    """Copies, until nothing is missing, what the programs and the libraries copied so far need."""
    known = library_paths()
    queue = sorted(bin_folder.iterdir())
    while queue:
        for name in needed(queue.pop()):
            if FROM_TORCH.match(name) or FROM_SYSTEM.match(name) or (lib_folder / name).exists():
                continue
            if name not in known:
                raise Missing(f"{name} is needed, and this machine's loader does not know it")
            shutil.copy(known[name], lib_folder / name)
            queue.append(lib_folder / name)


def commit():
    done = subprocess.run(["git", "-C", str(ROOT), "log", "-1", "--format=%h %s"], capture_output=True, text=True, check=False)
    return done.stdout or "unknown\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help="the build to pack")
    parser.add_argument("--cupti", type=pathlib.Path, help="a folder with CUPTI's include and lib, for the step profile (default: the toolkit's)")
    parser.add_argument("out", type=pathlib.Path, help="the folder of the kit")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stage = pathlib.Path(folder)
        (stage / "bin").mkdir()
        (stage / "lib").mkdir()
        try:
            copy_programs(args.build, stage / "bin")
            copy_libraries(stage / "bin", stage / "lib")
            if not build_kernel_times(stage / "bin/libkernel_times.so", [args.cupti] if args.cupti else None):
                print("there is no CUPTI here: the kit cannot run the step profile")
        except Missing as missing:
            print(missing, file=sys.stderr)
            return 1
        subprocess.run(["strip", "--strip-unneeded", *map(str, [*stage.glob("bin/*"), *stage.glob("lib/*")])], check=True)
        (stage / "commit").write_text(commit(), encoding="utf-8")
        args.out.mkdir(parents=True, exist_ok=True)
        with tarfile.open(args.out / "kit.tar.xz", "w:xz") as archive:
            archive.add(stage, ".")
        libraries = sorted(path.name for path in stage.glob("lib/*"))
    for script in SCRIPTS:
        shutil.copy(HERE / script, args.out)
    shutil.copytree(HERE.parent / "peers", args.out / "peers", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    size = (args.out / "kit.tar.xz").stat().st_size
    print(f"{args.out}: {size / 2**20:.1f} MiB, with {', '.join(libraries)}")
    print(f"there: python3 {args.out.name}/run_kit.py")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Runs a command on the null GPU, and reads what the processes of the command did with it.

    python3 -B tests/gpu/null/null_gpu.py [--gpus N] [--bytes N] [--report FOLDER] [--computes SCHEDULE] COMMAND ...

FOLDER gets one PID.json for each process that used the GPU; tests/gpu/null/README.md names its keys.  Build the libraries
first: ninja -C build/release sluice_null_gpu; for --computes also sluice_emulated_gpu.
"""
import argparse
import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent.parent
LIBRARIES = ROOT / "build/release/tests/null_gpu"

# Preloaded, for libtorch's own search path finds real libraries first.
PRELOADED = ("libcudart.so.13", "libcublasLt.so.13", "libcublas.so.13", "libnccl.so.2", "libcudnn.so.9", "libcuda.so.1",
             "libnull_gpu_end.so")


def schedule(text):
    """`early`, `late` or a number, as NULL_GPU_COMPUTES takes it."""
    if text not in ("early", "late") and not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text} is no schedule; early, late and numbers are")
    return text


def environment(libraries=LIBRARIES, gpus=1, card_bytes=None, report=None, computes=None):
    """The environment of a process that sees null GPUs and nothing else; with `computes` (a schedule) they give numbers."""
    libraries = pathlib.Path(libraries)
    if not (libraries / "libcudart.so.13").is_file():
        raise FileNotFoundError(f"{libraries} has no null GPU; build the target sluice_null_gpu")
    env = dict(os.environ)
    env.pop("NULL_GPU_COMPUTES", None)
    if computes is not None:
        module = libraries.parent / "emulated_gpu/libsluice_cuda.so"
        if not module.is_file():
            raise FileNotFoundError(f"{module} is missing; build the target sluice_emulated_gpu")
        env["NULL_GPU_COMPUTES"], env["SLUICE_CUDA_MODULE"] = computes, str(module)
    env["LD_PRELOAD"] = " ".join(str(libraries / name) for name in PRELOADED)
    env["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(libraries), env.get("LD_LIBRARY_PATH")]))
    # Where libtorch chooses attention itself (autograd's blocks, peers) it takes flash attention, which plans count; with 0
    # it chooses cuDNN as on a Hopper card.
    env.setdefault("TORCH_CUDNN_SDPA_DEPRIORITIZED", "1")
    env["NULL_GPU_COUNT"] = str(gpus)
    for key, value in (("NULL_GPU_BYTES", card_bytes), ("NULL_GPU_REPORT", report)):
        env.pop(key, None)
        if value is not None:
            env[key] = str(value)
    return env


def reports(folder):
    """The reports of a command's processes, those that launched most first."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in pathlib.Path(folder).glob("*.json")]
    return sorted(found, key=lambda report: -report["work"]["launches"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--libraries", type=pathlib.Path, default=LIBRARIES, help="the folder of the null GPU's libraries")
    parser.add_argument("--gpus", type=int, default=1, help="cards that are visible")
    parser.add_argument("--bytes", type=int, help="memory of a card (default: that of an H100)")
    parser.add_argument("--report", type=pathlib.Path, help="an existing folder for the reports")
    parser.add_argument("--computes", type=schedule, metavar="early|late|N", 
                        help="kernels, products and messages give numbers; the schedule of streams")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    if not args.command:
        parser.error("no command is given")
    if args.report and not args.report.is_dir():
        parser.error(f"--report {args.report}: no such folder; make it first")
    try:
        env = environment(args.libraries, args.gpus, args.bytes, args.report and args.report.resolve(), args.computes)
        os.execvpe(args.command[0], args.command, env)
    except OSError as error:
        parser.error(f"{error}")


if __name__ == "__main__":
    sys.exit(main())

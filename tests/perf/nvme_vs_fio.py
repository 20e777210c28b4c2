#!/usr/bin/env python3
"""The NVMe store against `fio --ioengine=io_uring --direct=1` at one block size, depth and direction.

    tests/perf/nvme_vs_fio.py BENCH DIRECTORY [--mb 512] [--block-kib 1024] [--depth 32] [--rounds 3] [--small-pages]

BENCH is the binary sluice_nvme_bench. Each measurement writes a new file of the same size first, then moves
its bytes: a virtual disk's host caches what was written last, so an older file would be another test. fio gets
registered buffers and files too. The three take turns and each round begins with another one. What counts is
the median of the rounds' ratios, one line of JSON for each direction and kind of store; read it with its spread.
--small-pages takes transparent huge pages from the store, whose buffers lie on them and fio's do not.
"""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys


def no_huge_pages():
    ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: survives exec


def ours(args, direction, checksums):
    command = [args.bench, args.directory, str(args.mb), str(args.block_kib), str(args.depth), direction]
    if not checksums:
        command.append("plain")
    run = subprocess.run(command, capture_output=True, text=True, check=True,
                         preexec_fn=no_huge_pages if args.small_pages else None)
    return json.loads(run.stdout)["bytes_per_s"]


def fio(args, direction):
    path = os.path.join(args.directory, "fio-peer.dat")
    run_fio(args, path, "write")
    rate = run_fio(args, path, direction)
    os.remove(path)
    return rate


def run_fio(args, path, direction):
    command = ["fio", "--name=peer", f"--filename={path}", "--ioengine=io_uring", "--direct=1",
               "--fixedbufs=1", "--registerfiles=1", "--overwrite=1", "--fallocate=posix",
               "--randrepeat=0", "--refill_buffers=0", f"--rw={direction}", f"--size={args.mb}M",
               f"--bs={args.block_kib}k", f"--iodepth={args.depth}", "--output-format=json"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(run.stdout)["jobs"][0][direction]["bw_bytes"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("directory")
    parser.add_argument("--mb", type=int, default=512)
    parser.add_argument("--block-kib", type=int, default=1024)
    parser.add_argument("--depth", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small-pages", action="store_true")
    args = parser.parse_args()
    os.makedirs(args.directory, exist_ok=True)
    try:
        for direction in ("read", "write"):
            measure = {"checksums": lambda d=direction: ours(args, d, True), "fio": lambda d=direction: fio(args, d),
                       "plain": lambda d=direction: ours(args, d, False)}
            rates = {kind: [] for kind in measure}
            for number in range(args.rounds):
                kinds = list(measure)
                first = number % len(kinds)
                for kind in kinds[first:] + kinds[:first]:
                    rates[kind].append(measure[kind]())
            for kind in ("checksums", "plain"):
                ratios = [a / b for a, b in zip(rates[kind], rates["fio"])]
                print(json.dumps({
                    "direction": direction, "store": kind, "block_kib": args.block_kib, "depth": args.depth,
                    "ratio": round(statistics.median(ratios), 3), "ratios": [round(r, 3) for r in ratios],
                    "store_gb_s": round(statistics.median(rates[kind]) / 1e9, 3),
                    "fio_gb_s": round(statistics.median(rates["fio"]) / 1e9, 3)}), flush=True)
    finally:
        try:
            os.remove(os.path.join(args.directory, "fio-peer.dat"))
        except FileNotFoundError:
            pass


if __name__ == "__main__":
    sys.exit(main())

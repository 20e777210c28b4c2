"""The archive: the wheel's contents with libtorch, and with NVIDIA's libraries if it is for GPUs.

glibc and libstdc++ are the machine's, as for the wheel: a libstdc++ from here would ask for a newer glibc than the
program does.

lib/ is laid out like the folder into which pip installs, so the libraries find each other by their own run paths.
"""
import glob
import gzip
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

from building import DISK_OR_NETWORK, ROOT, PackageError, say, version_of
from wheel_file import HERE, torch_version, write

# libtorch loads them by name, when it needs them.
LOADED_LATER = ("torch/lib/libcaffe2_nvrtc.so", "torch/lib/libtorch_cuda_linalg.so", "nvidia/*/lib/*.so*")
LICENCES = ("torch-*.dist-info/licenses/*", "nvidia_*.dist-info/licenses/*")


def unpack_wheel(wheel, folder):
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            path = archive.extract(entry, folder)
            mode = entry.external_attr >> 16 & 0o777
            if mode:
                os.chmod(path, mode)


def nvidia_is_there(site):
    return bool(glob.glob(os.path.join(glob.escape(site), "nvidia", "cudnn", "lib", "libcudnn.so.9")))


def fetch_nvidia(build, site):
    """NVIDIA's libraries beside libtorch, as libtorch of the wheel looks for them."""
    if nvidia_is_there(site):
        return
    instead = "or make an archive for CPUs with --device cpu"
    if not os.path.realpath(site).startswith(os.path.realpath(os.path.join(ROOT, "third_party")) + os.sep):
        raise PackageError(f"{site} has no NVIDIA libraries beside its libtorch (nvidia/cudnn/lib/libcudnn.so.9 and others); "
                           f"install torch's requirements there, {instead}", 2)
    status = subprocess.run([sys.executable, os.path.join(ROOT, "cmake", "fetch_wheels.py"), site, "--gpu"], check=False)
    if status.returncode != 0:
        raise PackageError(f"NVIDIA's libraries could not be fetched (above); repair that, {instead}", DISK_OR_NETWORK)


def loaded_libraries(lib, torch_root):
    """What the program in `lib` loads: a dictionary from name to path."""
    found = {}
    site = glob.escape(os.path.dirname(torch_root))
    folders = [os.path.join(torch_root, "lib"), *sorted(glob.glob(os.path.join(site, "nvidia", "*", "lib")))]
    for binary in glob.glob(os.path.join(glob.escape(lib), "sluice", "bin", "*")):
        done = subprocess.run(["ldd", binary], env=dict(os.environ, LD_LIBRARY_PATH=":".join(folders)),
                              capture_output=True, text=True, check=False)
        absent = [n for n in re.findall(r"^\s*(\S+) => not found", done.stdout, re.M) if not n.startswith("libcuda.so")]
        if absent:
            raise PackageError(f"{os.path.basename(binary)} needs {', '.join(absent)}, which is not beside {torch_root}")
        found.update(re.findall(r"^\s*(\S+) => (/\S+) \(0x", done.stdout, re.M))
    return found


def copy_into(site, path, lib):
    target = os.path.join(lib, os.path.relpath(path, site))
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copyfile(path, target)


def copy_libtorch(build, site, lib):
    loaded = loaded_libraries(lib, build.torch_root)
    real_site = os.path.realpath(site) + os.sep
    patterns = [*LICENCES, *(LOADED_LATER if build.has_cuda() else ())]
    files = {p for pattern in patterns for p in glob.glob(os.path.join(glob.escape(site), pattern))}
    for path in loaded.values():
        if os.path.realpath(path).startswith(real_site):
            files.add(os.path.join(site, os.path.relpath(os.path.realpath(path), real_site)))
    files |= set(glob.glob(os.path.join(glob.escape(build.torch_root), "**", "*.py"), recursive=True))
    for path in sorted(files):
        copy_into(site, path, lib)
    if not glob.glob(os.path.join(glob.escape(lib), "torch-*.dist-info")):
        say("this libtorch came without its licence texts; add them before the archive is passed on")


def write_front(build, top):
    """What a user sees first."""
    with open(os.path.join(HERE, "archive", "sluice.sh"), encoding="utf-8") as stream:
        launcher = stream.read()
    refusal = "" if build.has_cuda() else 'export SLUICE_CUDA_REFUSED="this archive is for CPUs; take the one for CUDA"'
    write(os.path.join(top, "sluice"), launcher.replace("@CUDA_REFUSED@\n", refusal + "\n" if refusal else ""))
    os.chmod(os.path.join(top, "sluice"), 0o755)
    shutil.copy(os.path.join(ROOT, "LICENSE"), top)
    shutil.copy(os.path.join(ROOT, "docs", "install.md"), os.path.join(top, "README.md"))
    os.symlink("lib/sluice/configs", os.path.join(top, "configs"))


def owned_by_root(entry):
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def pack(top, path):
    """A tar file by gzip, which every cluster can unpack. Moved into place once it is whole."""
    with open(path + ".part", "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as stream:
        with tarfile.open(fileobj=stream, mode="w") as archive:
            archive.add(top, os.path.basename(top), filter=owned_by_root)
    os.replace(path + ".part", path)


def folder_bytes(top):
    return sum(os.lstat(os.path.join(at, name)).st_size for at, _, names in os.walk(top) for name in names)


def make_archive(build, wheel, output):
    """Returns the archive's path."""
    device = "cuda" if build.has_cuda() else "cpu"
    site = os.path.dirname(os.path.abspath(build.torch_root))
    if device == "cuda":
        fetch_nvidia(build, site)
    top = os.path.join(build.folder, "archive", f"sluice-{version_of()}-linux-x86_64-{device}")
    shutil.rmtree(os.path.dirname(top), ignore_errors=True)
    lib = os.path.join(top, "lib")
    unpack_wheel(wheel, lib)
    copy_libtorch(build, site, lib)
    write_front(build, top)
    path = os.path.join(output, os.path.basename(top) + ".tar.gz")
    say(f"packing {folder_bytes(top) / 1e6:.0f} MB")
    pack(top, path)
    say(f"{path}: {os.path.getsize(path) / 1e6:.0f} MB, {folder_bytes(top) / 1e6:.0f} MB unpacked, with libtorch "
        f"{torch_version(build.torch_root)[0]} for {'CUDA' if device == 'cuda' else 'CPUs'}; a Linux "
        f"with glibc {'.'.join(re.search(r'manylinux_([0-9]+)_([0-9]+)_', wheel).groups())} or later starts it")
    shutil.rmtree(os.path.dirname(top))
    return path

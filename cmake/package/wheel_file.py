"""The wheel: the program, its small libraries under names of their own, and the launcher that finds libtorch.

auditwheel copies the libraries into sluice.libs/, gives each a name with a hash, points the program at them, and
computes the platform tag from the symbols that all of them need.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import zipfile

import licences
from building import ROOT, PackageError, fetch_tools, run, say, tool_environment, version_of

HERE = os.path.dirname(os.path.abspath(__file__))

# libtorch and NVIDIA's libraries come with the installed torch, the driver with the machine.
FROM_TORCH = ("libcu*.so*", "libnv*.so*", "libnccl.so*")

METADATA = """Metadata-Version: 2.4
Name: sluice
Version: {version}
Summary: Trains transformer models that are larger than the memory at hand
License-Expression: Apache-2.0
{licence_files}
Requires-Python: >=3.9
Requires-Dist: torch=={torch}
Description-Content-Type: text/markdown

{readme}"""

WHEEL = """Wheel-Version: 1.0
Generator: sluice
Root-Is-Purelib: false
Tag: py3-none-linux_x86_64
"""


def torch_version(torch_root):
    """(version, CUDA's version) of the libtorch that the program is built with, as the launcher will read it."""
    sys.path.insert(0, os.path.join(HERE, "wheel"))
    try:
        from torch_home import read_version
    finally:
        sys.path.pop(0)
    version, cuda = read_version(torch_root)
    if not version:
        raise PackageError(f"{torch_root} does not say its version: it has neither version.py nor build-version", 2)
    return version.split("+")[0], cuda


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


def copy_stripped(source, target):
    shutil.copy(source, target)
    done = subprocess.run(["strip", "--strip-unneeded", target], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PackageError(f"strip failed on {target}: {done.stderr.strip()}")


def stage_package(build, folder):
    """The folder `sluice` of the wheel."""
    package = os.path.join(folder, "sluice")
    shutil.copytree(os.path.join(HERE, "wheel"), package, ignore=shutil.ignore_patterns("__pycache__"))
    torch, cuda = torch_version(build.torch_root)
    write(os.path.join(package, "_build.py"),
          f'"""What the program was built as and with."""\nVERSION = "{version_of()}"\nTORCH = "{torch}"\n'
          f'CUDA = "{cuda if build.has_cuda() else ""}"  # "": without the CUDA module\n')
    os.makedirs(os.path.join(package, "bin"))
    copy_stripped(build.program, os.path.join(package, "bin", "sluice"))
    if build.has_cuda():
        copy_stripped(build.module, os.path.join(package, "bin", "libsluice_cuda.so"))
    os.makedirs(os.path.join(package, "configs"))
    for path in glob.glob(os.path.join(ROOT, "configs", "*.yaml")):
        shutil.copy(path, os.path.join(package, "configs"))


def stage_metadata(build, folder):
    version = version_of()
    info = os.path.join(folder, f"sluice-{version}.dist-info")
    texts = os.path.join(info, "licenses")
    licences.copy_licences(build, os.path.join(texts, "bundled"))
    shutil.copy(os.path.join(ROOT, "LICENSE"), texts)
    names = ["LICENSE"] + sorted("bundled/" + n for n in os.listdir(os.path.join(texts, "bundled")))
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as stream:
        readme = stream.read()
    write(os.path.join(info, "METADATA"), METADATA.format(
        version=version, torch=torch_version(build.torch_root)[0], readme=readme,
        licence_files="\n".join(f"License-File: {n}" for n in names)))
    write(os.path.join(info, "WHEEL"), WHEEL)
    write(os.path.join(info, "entry_points.txt"), "[console_scripts]\nsluice = sluice.__main__:main\n")
    # auditwheel reads the names here, and writes the final list with hashes.
    names = files_below(folder) + [f"{os.path.basename(info)}/RECORD"]
    write(os.path.join(info, "RECORD"), "".join(f"{name},,\n" for name in names))


def files_below(folder):
    """Names relative to `folder`, in order."""
    return sorted(os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names)


def zip_folder(folder, path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name in files_below(folder):
            archive.write(os.path.join(folder, name), name)


def libraries_of_torch(torch_root):
    return sorted(n for n in os.listdir(os.path.join(torch_root, "lib")) if ".so" in n)


def make_wheel(build, output):
    """Returns the wheel's path."""
    fetch_tools(build)
    staging = os.path.join(build.folder, "wheel")
    shutil.rmtree(staging, ignore_errors=True)
    stage_package(build, os.path.join(staging, "tree"))
    stage_metadata(build, os.path.join(staging, "tree"))
    plain = os.path.join(staging, f"sluice-{version_of()}-py3-none-linux_x86_64.whl")
    zip_folder(os.path.join(staging, "tree"), plain)
    excluded = [o for name in (*libraries_of_torch(build.torch_root), *FROM_TORCH) for o in ("--exclude", name)]
    repaired = os.path.join(staging, "repaired")
    run([sys.executable, "-m", "auditwheel", "-v", "repair", "--only-plat", *excluded, "-w", repaired, plain],
        "auditwheel", os.path.join(build.folder, "auditwheel.log"), env=tool_environment(build))
    wheels = os.listdir(repaired)
    if len(wheels) != 1 or not re.search(r"-manylinux_\d+_\d+_x86_64\.whl$", wheels[0]):
        raise PackageError(f"auditwheel made {wheels} in {repaired}, expected one manylinux wheel "
                           f"(see {build.folder}/auditwheel.log)")
    path = os.path.join(output, wheels[0])
    os.replace(os.path.join(repaired, wheels[0]), path)
    say(f"{path}: {os.path.getsize(path) / 1e6:.1f} MB, for torch {torch_version(build.torch_root)[0]}, "
        f"{'with' if build.has_cuda() else 'without'} CUDA")
    return path

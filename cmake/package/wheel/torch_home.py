"""Finds the libtorch that the program runs with. Reads files only: an import of torch takes seconds."""
import glob
import importlib.util
import os
import re
import shlex
import sys
from dataclasses import dataclass


class TorchError(Exception):
    """Printed as it is; the message says what to do."""


@dataclass(frozen=True)
class Torch:
    home: str  # the folder that holds lib/
    version: str  # "2.11.0+cu130"; "" if no file says so
    cuda: str  # "13.0"; "" for a torch of CPUs


def pip_line(version, option=""):
    return f"{shlex.quote(sys.executable or 'python3')} -m pip install {option}torch=={version}"


def read_version(home):
    """(version, cuda) of the torch in `home`: torch's own version.py, or the file of a libtorch without Python."""
    try:
        with open(os.path.join(home, "version.py"), encoding="utf-8") as stream:
            text = stream.read()
    except OSError:
        try:
            with open(os.path.join(home, "build-version"), encoding="utf-8") as stream:
                version = stream.read().strip()
        except OSError:
            return "", ""
        cuda = re.search(r"\+cu(\d+)(\d)$", version)
        return version, ".".join(cuda.groups()) if cuda else ""
    version = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", text, re.M)
    cuda = re.search(r"^cuda\b[^=\n]*=\s*['\"]([^'\"]+)", text, re.M)
    return version.group(1) if version else "", cuda.group(1) if cuda else ""


def installed_home():
    """The folder of the torch that this Python would import; None if there is none."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.origin:
        return None
    return os.path.dirname(os.path.abspath(spec.origin))


def find_torch(needed):
    """The torch to run with, which must be of the version `needed`. Throws TorchError."""
    given = os.environ.get("SLUICE_TORCH_ROOT")
    home = os.path.abspath(given) if given else installed_home()
    if home is None:
        raise TorchError(f"this Sluice needs torch {needed}, and {sys.executable} has no torch; install it:\n"
                         f"  {pip_line(needed)}")
    remedy = "name another folder in SLUICE_TORCH_ROOT, or unset it" if given else f"install it:\n  {pip_line(needed)}"
    version, cuda = read_version(home)
    if version.split("+")[0] != needed:
        raise TorchError(f"this Sluice needs torch {needed}, and {home} is torch "
                         f"{version or 'of a version that no file there says'}; {remedy}")
    if not os.path.isfile(os.path.join(home, "lib", "libtorch_cpu.so")):
        raise TorchError(f"{home} has no lib/libtorch_cpu.so, which torch {needed} for Linux has; {remedy}")
    if ":" in home:
        raise TorchError(f"{home} has a colon in its path, which the dynamic linker's search path cannot hold; move it")
    return Torch(home, version, cuda)


def library_folders(torch):
    """Folders for the dynamic linker. libtorch finds NVIDIA's libraries itself where they are in its own site folder."""
    folders = [os.path.join(torch.home, "lib")]
    beside = os.path.join(os.path.dirname(torch.home), "nvidia")
    if torch.cuda:
        for entry in sys.path:
            nvidia = os.path.join(os.path.abspath(entry), "nvidia")
            if nvidia != beside:
                folders += sorted(glob.glob(os.path.join(glob.escape(nvidia), "*", "lib")))
    return [folder for folder in folders if ":" not in folder]


def cuda_refusal(torch, built_torch, built_cuda):
    """Why the program's CUDA module cannot be loaded with this torch; "" where it can."""
    major = built_cuda.split(".")[0]
    if not major:
        return "this Sluice was packed without its CUDA module"
    if torch.cuda.split(".")[0] == major:
        return ""
    # --force-reinstall: for pip a torch of the same version is the same, whatever it was built for.
    return (f"torch {torch.version} in {torch.home} is for {'CUDA ' + torch.cuda if torch.cuda else 'CPUs'}; this Sluice needs "
            f"torch {built_torch} for CUDA {major} ({pip_line(built_torch, '--force-reinstall ')})")

"""The command `sluice`: becomes the program, with the installed libtorch on the dynamic linker's path.

The ranks that the program starts inherit the environment that is set here.
"""
import os
import sys

from sluice import _build
from sluice.torch_home import TorchError, cuda_refusal, find_torch, library_folders

CONFIGURATION = 2  # the program's exit code for a wrong configuration


def environment(package):
    torch = find_torch(_build.TORCH)
    found = dict(os.environ, SLUICE_TORCH_ROOT=torch.home, SLUICE_SHIPPED=package)
    path = library_folders(torch) + [part for part in [found.get("LD_LIBRARY_PATH")] if part]
    found["LD_LIBRARY_PATH"] = ":".join(path)
    refusal = cuda_refusal(torch, _build.TORCH, _build.CUDA)
    if refusal:
        found["SLUICE_CUDA_REFUSED"] = refusal
    return found


def main():
    package = os.path.dirname(os.path.abspath(__file__))
    program = os.path.join(package, "bin", "sluice")
    try:
        os.execve(program, ["sluice", *sys.argv[1:]], environment(package))
    except TorchError as error:
        print(f"sluice: {error}", file=sys.stderr)
    except OSError as error:
        print(f"sluice: cannot start {program}: {error.strerror}; install the wheel again", file=sys.stderr)
    return CONFIGURATION


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Makes what users install: a wheel, an archive, or a folder for docker build. ./sluice package calls this."""
import argparse
import os
import platform
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from archive import make_archive  # noqa: E402
from building import ARCHITECTURES, CONFIGURATION, DISK_OR_NETWORK, ROOT, Build, PackageError, compile_program  # noqa: E402
from docker_folder import make_docker_folder  # noqa: E402
from wheel_file import make_wheel  # noqa: E402

EPILOG = """wheel    a Python wheel: pip install gives the command sluice, with the libtorch of the installed torch
archive  a tar file with libtorch, for machines without Python; with NVIDIA's libraries if it is for CUDA
docker   a folder for docker build

examples:
  ./sluice package wheel
  ./sluice package archive --device cpu
  ./sluice package wheel --device cuda --architectures 90,100
"""


def architectures(text):
    names = [name.strip().removeprefix("sm_") for name in text.split(",")]
    for name in names:
        if not name[:2].isdigit() or not name.isalnum():
            raise argparse.ArgumentTypeError(f"'{name}' is no GPU architecture; expected numbers such as 80,90")
    return tuple(sorted(set(names), key=lambda name: int("".join(c for c in name if c.isdigit()))))


def read_arguments(argv):
    parser = argparse.ArgumentParser(prog="sluice package", epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     description="Makes what users install.")
    parser.add_argument("what", choices=("wheel", "archive", "docker"), metavar="wheel|archive|docker")
    parser.add_argument("-o", "--output", default=os.path.join(ROOT, "dist"), help="folder for the package (default: dist)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto",
                        help="cuda: with the CUDA module; auto: where nvcc is found (default)")
    parser.add_argument("--architectures", type=architectures, default=ARCHITECTURES, metavar="80,90,...",
                        help=f"GPUs to compile for (default: {','.join(ARCHITECTURES)}); the last one gets PTX as well")
    return parser.parse_args(argv)


def make(args):
    output = os.path.abspath(args.output)
    os.makedirs(output, exist_ok=True)  # fails now rather than after the build
    if args.what == "docker":
        return make_docker_folder(output)
    if platform.machine() != "x86_64":
        raise PackageError(f"wheels and archives are made for x86-64, and this machine is {platform.machine()}; "
                           "pack on another one", CONFIGURATION)
    # Both variables are set by ./sluice.
    build = Build(folder=os.path.join(ROOT, "build", "package"), torch_root=os.path.abspath(os.environ["SLUICE_TORCH_ROOT"]),
                  jobs=int(os.environ.get("SLUICE_JOBS") or 1), device=args.device, architectures=args.architectures)
    compile_program(build)
    if args.what == "wheel":
        return make_wheel(build, output)
    return make_archive(build, make_wheel(build, build.folder), output)


def main(argv):
    args = read_arguments(argv)
    try:
        print(make(args))
        return 0
    except PackageError as error:
        print(f"sluice: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"sluice: {error}; check the disk and the permissions", file=sys.stderr)
        return DISK_OR_NETWORK
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

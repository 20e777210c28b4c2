"""Short trainings on the null GPU: a configuration, the program's answer, and what the card saw."""
import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "null"))
import null_gpu  # noqa: E402

TEXT_BYTES = 1 << 18
TALKS = 600
SECONDS = 600  # most of one run


def absolute(path):
    return pathlib.Path(path).resolve()  # runs have a working directory of their own


def add_arguments(parser):
    parser.add_argument("--sluice", type=absolute, default=null_gpu.ROOT / "build/release/runtime/cli/sluice",
                        help="the program")
    parser.add_argument("--libraries", type=absolute, default=null_gpu.LIBRARIES,
                        help="the folder of the null GPU's libraries")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time")


def main(description, everything, named_checks, computes=None):
    """A test of checks that are found by name; its exit code.  named_checks(place, --all) yields (name, function without arguments),
    whose function returns what is wrong and a note; `everything` says what --all adds.  With `computes` it needs the emulated GPU."""
    parser = argparse.ArgumentParser(description=description.split("\n", maxsplit=1)[0])
    add_arguments(parser)
    parser.add_argument("--all", action="store_true", help=everything)
    parser.add_argument("--only", default="", help="checks whose name has this in it")
    args = parse(parser)
    if computes:
        try:
            null_gpu.environment(args.libraries, computes=computes)
        except FileNotFoundError as error:
            print(f"skipped: {error}")
            return 77
    bad = 0
    with tempfile.TemporaryDirectory(prefix="sluice-null-gpu-") as folder:
        checks = [check for check in named_checks(Place(args, folder), args.all) if args.only in check[0]]
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as workers:
            for (name, _), (found, note) in zip(checks, workers.map(lambda check: check[1](), checks)):
                print(f"{'FAILED' if found else 'ok':6s} {name}" + f" ({note})" * bool(note), *found, sep="\n       " if found else "", flush=True)
                bad += bool(found)
    print(f"{len(checks) - bad} of {len(checks)} as they should be")
    return 1 if bad or not checks else 0


def parse(parser):
    """The arguments; ends the test with 77 where there is no null GPU."""
    args = parser.parse_args()
    if not args.libraries.is_dir():
        print(f"skipped: no null GPU in {args.libraries}; this build has no CUDA module")
        sys.exit(77)
    return args


@dataclasses.dataclass
class Answer:
    """What a command left: its exit code, all it said, its run folder, the reports of its processes."""
    code: int
    text: str
    folder: pathlib.Path
    reports: list

    @property
    def plan(self):
        return json.loads((self.folder / "plan.json").read_text(encoding="utf-8"))

    @property
    def steps(self):
        lines = (self.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]


def talks(shortest, longest):
    letters = random.Random(2)
    for _ in range(TALKS):
        text = "".join(letters.choices("abcdefghijklmnopqrstuvwxyz ", k=letters.randint(shortest, longest) - 1))  # and an end of text
        yield json.dumps({"prompt": text[:1], "completion": text[1:]})


class Place:
    """A folder with the training text; each run has a folder of its own in it."""

    def __init__(self, args, folder):
        self.args, self.folder, self.mutex = args, pathlib.Path(folder), threading.Lock()
        letters = random.Random(1)
        text = "".join(letters.choice("abcdefghijklmnopqrstuvwxyz  \n") for _ in range(TEXT_BYTES))
        (self.folder / "text.txt").write_text(text, encoding="ascii")

    def talks(self, shortest, longest):
        """Settings of a training on conversations of that many tokens, packed into rows."""
        path = self.folder / f"talks-{shortest}-{longest}.jsonl"
        with self.mutex:  # written once: runs of other checks may read the file
            if not path.exists():
                path.write_text("\n".join(talks(shortest, longest)), encoding="ascii")
        return {"data.sft": [{"path": str(path), "format": "completion"}], "data.text": []}

    def config(self, name, model, settings):
        """A YAML file: one line a key, `settings` by their dotted names."""
        sections = {"model": dict(model)}
        for key, value in (DEFAULTS | settings).items():
            section, _, rest = key.partition(".")
            sections.setdefault(section, {})[rest] = value
        sections["data"] = {"text": [str(self.folder / "text.txt")], "split": [1, 0], "cache_dir": str(self.folder / "tokens"),
                            **sections.get("data", {})}
        sections["output"] = {"dir": str(self.folder / name / "run"), **sections.get("output", {})}
        path = self.folder / name / "config.yaml"
        path.parent.mkdir(exist_ok=True)
        # JSON is YAML.
        path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in sections.items()), encoding="ascii")
        return path

    def command(self, name, arguments, gpus=1, card_bytes=None, failpoints="", capability=90, computes=None, variables=None):
        """The program with `arguments` on null GPUs of a compute capability (times ten), without GPUs if `gpus` is 0.  `failpoints` as
        in base/failpoint.hpp, `computes` a schedule of null_gpu.py, `variables` more of the environment."""
        report = self.folder / name / "report"
        shutil.rmtree(report, ignore_errors=True)
        report.mkdir(parents=True)
        env = null_gpu.environment(self.args.libraries, gpus, card_bytes, report, computes) if gpus else dict(os.environ)
        env |= {"OMP_NUM_THREADS": "1", "SLUICE_FAILPOINTS": failpoints, "NULL_GPU_CAPABILITY": str(capability)} | (variables or {})
        done = subprocess.run([str(self.args.sluice), *map(str, arguments)], cwd=self.folder, env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=SECONDS)
        return Answer(done.returncode, done.stdout, self.folder / name / "run", null_gpu.reports(report))

    def train(self, name, model, settings, gpus=1, **kwargs):
        shutil.rmtree(self.folder / name, ignore_errors=True)
        return self.command(name, ["train", self.config(name, model, settings)], gpus, **kwargs)


DEFAULTS = {
    "train.steps": 2, "train.micro_batch": 2, "train.eval_steps": 0, "train.sample_tokens": 0, "train.seed": 7, "checkpoint.at_end": False,
    "train.attention": "flash",  # the emulated GPU does not compute cuDNN's
    "optimizer.lr": 1e-4, "schedule.type": "constant", "launch.nproc": 1, "launch.threads": 1, "launch.backend": "nccl",
    "launch.timeout": 120,
}


def tail(text, lines=20):
    """The end of a program's output, without the frames of libtorch's stack traces."""
    kept = [line for line in text.splitlines() if "frame #" not in line]
    return "\n".join("    " + line for line in kept[-lines:])

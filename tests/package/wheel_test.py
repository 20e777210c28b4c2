#!/usr/bin/env python3
"""A real wheel and a real archive, compiled and packed: minutes, and pip fetches the tools that pack.

Usage: wheel_test.py TORCH_ROOT. Exit status 77: pip cannot fetch here.
"""
import base64
import csv
import glob
import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKER = os.path.join(ROOT, "cmake", "package", "package.py")
SKIPPED = 77

# Of every Linux that the tag admits; the rest must be the wheel's own or libtorch's.
OF_THE_SYSTEM = {"linux-vdso.so.1", "libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libutil.so.1",
                 "libstdc++.so.6", "libgcc_s.so.1"}

TINY = """model: {type: gpt2, layers: 1, hidden: 16, heads: 2, seq: 16}
data: {text: ["${SLUICE_TORCH_ROOT}/_VF.py"], tokenizer: bytes, split: [1, 0]}
train: {steps: 2, micro_batch: 1, global_batch: 2, log_every: 1}
launch: {nproc: 2, backend: gloo}
output: {dir: run}
"""


def make(what, device, torch_root, output):
    environment = dict(os.environ, SLUICE_TORCH_ROOT=torch_root)
    environment.setdefault("SLUICE_JOBS", str(os.cpu_count() or 1))
    done = subprocess.run([sys.executable, "-B", PACKER, what, "--device", device, "-o", output], env=environment, stdout=subprocess.PIPE, text=True,
                          check=False)
    if done.returncode == 4:
        print("skipped: pip cannot fetch the tools that pack")
        sys.exit(SKIPPED)
    if done.returncode != 0:
        sys.exit(f"package.py {what} ended with {done.returncode}")
    return done.stdout.strip()


class Wheel(unittest.TestCase):
    torch_root = ""
    wheel = ""
    archive = ""

    def setUp(self):
        self.top = self.enterContext(tempfile.TemporaryDirectory())

    def installed(self):
        """As pip unpacks it, beside a link to torch."""
        site = os.path.join(self.top, "site packages")
        with zipfile.ZipFile(self.wheel) as packed:
            for entry in packed.infolist():
                os.chmod(packed.extract(entry, site), entry.external_attr >> 16 & 0o777 or 0o644)
        os.symlink(self.torch_root, os.path.join(site, "torch"))
        return site

    def test_name_and_tag(self):
        tag = re.fullmatch(r"sluice-[0-9.]+-(py3-none-manylinux_2_(\d+)_x86_64)\.whl", os.path.basename(self.wheel))
        self.assertTrue(tag, self.wheel)
        needed = 0
        with zipfile.ZipFile(self.wheel) as packed:
            info = next(n.split("/")[0] for n in packed.namelist() if ".dist-info/" in n)
            self.assertIn(f"Tag: {tag.group(1)}\n", packed.read(f"{info}/WHEEL").decode())
            for name in packed.namelist():
                if ".so" in name or name == "sluice/bin/sluice":
                    needed = max([needed] + [int(v) for v in re.findall(rb"GLIBC_2\.(\d+)", packed.read(name))])
        self.assertLessEqual(needed, int(tag.group(2)))
        self.assertGreaterEqual(needed, 17)

    def test_record(self):
        with zipfile.ZipFile(self.wheel) as packed:
            record = next(n for n in packed.namelist() if n.endswith(".dist-info/RECORD"))
            rows = {row[0]: row[1:] for row in csv.reader(packed.read(record).decode().splitlines())}
            files = {n for n in packed.namelist() if not n.endswith("/")}
            self.assertEqual(set(rows), files)
            for name in files - {record}:
                data = packed.read(name)
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                self.assertEqual(rows[name], [f"sha256={digest}", str(len(data))], name)

    def test_contents(self):
        with zipfile.ZipFile(self.wheel) as packed:
            names = packed.namelist()
            for name in names:
                self.assertRegex(name, r"^(sluice|sluice\.libs|sluice-[0-9.]+\.dist-info)/")
            bundled = [n for n in names if n.startswith("sluice.libs/") and not n.endswith("/")]
            for name in bundled:
                self.assertRegex(name, r"-[0-9a-f]{8}\.so")
                self.assertNotRegex(name, r"libtorch|libc10|libcu|libnv|libnccl|libgomp|libstdc|libc-")
            for name in ("sluice/configs/quickstart.yaml", "sluice/bin/sluice", "sluice/__main__.py", "sluice/_build.py"):
                self.assertIn(name, names)
            self.assertTrue(any(n.endswith("licenses/LICENSE") for n in names))
            built = packed.read("sluice/_build.py").decode()
            self.assertEqual("sluice/bin/libsluice_cuda.so" in names, 'CUDA = ""' not in built)
            self.assertNotIn(ROOT.encode() + b"/build", packed.read("sluice/bin/sluice"))

    def test_loads_nothing_else(self):
        site = self.installed()
        done = subprocess.run(["ldd", os.path.join(site, "sluice", "bin", "sluice")], capture_output=True, text=True, check=True,
                              env={"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": os.path.join(self.torch_root, "lib")})
        home = os.path.dirname(os.path.realpath(self.torch_root))
        for line in done.stdout.splitlines():
            name, _, path = line.strip().partition(" => ")
            path = os.path.realpath(path.split(" (")[0])
            ours = path.startswith((os.path.realpath(site), home))
            self.assertTrue(ours or name.split(" ")[0] in OF_THE_SYSTEM or name.startswith("/lib64/ld-linux"), line)

    def train(self, command, **environment):
        with open(os.path.join(self.top, "tiny.yaml"), "w", encoding="utf-8") as out:
            out.write(TINY)
        done = subprocess.run([*command, "train", "tiny.yaml"], cwd=self.top, capture_output=True, text=True, check=False,
                              env={"PATH": os.environ["PATH"], **environment}, timeout=300)
        text = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, text)
        self.assertIn("step 2/2", text)

    def test_two_ranks_train_from_the_wheel(self):
        self.train([sys.executable, "-S", "-m", "sluice"], PYTHONPATH=self.installed())

    def test_two_ranks_train_from_the_archive(self):
        with tarfile.open(self.archive) as packed:
            packed.extractall(self.top)
        home = glob.glob(os.path.join(self.top, "sluice-*-linux-*"))[0]
        link = os.path.join(self.top, "a link")
        os.symlink(os.path.join(home, "sluice"), link)
        self.train([link])
        self.assertTrue(os.path.exists(os.path.join(home, "configs", "quickstart.yaml")))

    def test_configurations_of_the_wheel(self):
        done = subprocess.run([sys.executable, "-S", "-m", "sluice", "train", "quickstart.yaml", "--dry-run", "--set",
                               "launch.backend=gloo", "--set", "data.text=[tiny.yaml]", "--set", "data.tokenizer=bytes"],
                              cwd=self.top, capture_output=True, text=True, check=False, timeout=300,
                              env={"PATH": os.environ["PATH"], "PYTHONPATH": self.installed()})
        self.assertIn("tiny.yaml", done.stdout + done.stderr)  # the data is read after the configuration
        self.assertNotIn("quickstart.yaml: cannot be read", done.stderr)


def main():
    Wheel.torch_root = os.path.abspath(sys.argv.pop(1))
    with tempfile.TemporaryDirectory() as output:
        Wheel.wheel = make("wheel", "auto", Wheel.torch_root, output)
        Wheel.archive = make("archive", "cpu", Wheel.torch_root, output)
        unittest.main()


if __name__ == "__main__":
    main()

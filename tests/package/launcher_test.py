#!/usr/bin/env python3
"""The wheel's launcher in site folders made up here, with a program that prints what it was started with."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

PROGRAM = f"""#!{sys.executable}
import json, os, sys
print(json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ)}}))
sys.exit(7)
"""

VERSION_PY = """from typing import Optional
__all__ = ['__version__', 'debug', 'cuda']
__version__ = '{version}'
debug = False
cuda: Optional[str] = {cuda!r}
"""


class Launcher(unittest.TestCase):
    def setUp(self):
        self.top = self.enterContext(tempfile.TemporaryDirectory())
        self.site = os.path.join(self.top, "site")
        self.add_sluice(self.site)

    def put(self, path, text="", mode=0o644):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(path, mode)

    def add_sluice(self, site, cuda="13.0"):
        package = os.path.join(site, "sluice")
        shutil.rmtree(package, ignore_errors=True)
        shutil.copytree(os.path.join(ROOT, "cmake", "package", "wheel"), package)
        self.put(os.path.join(package, "_build.py"), f'VERSION = "0.1.0"\nTORCH = "2.11.0"\nCUDA = "{cuda}"\n')
        self.put(os.path.join(package, "bin", "sluice"), PROGRAM, 0o755)

    def add_torch(self, site, version="2.11.0+cu130", cuda="13.0"):
        home = os.path.join(site, "torch")
        self.put(os.path.join(home, "version.py"), VERSION_PY.format(version=version, cuda=cuda))
        # An import of torch would end the launcher.
        self.put(os.path.join(home, "__init__.py"), "raise SystemExit('torch was imported')\n")
        self.put(os.path.join(home, "lib", "libtorch_cpu.so"))
        return home

    def start(self, *sites, args=(), **environment):
        """-S: without the site folders of the Python that runs the tests."""
        command = [sys.executable, "-S", "-B", "-m", "sluice", *args]
        return subprocess.run(command, cwd=self.top, capture_output=True, text=True, check=False,
                              env={"PYTHONPATH": os.pathsep.join(sites or [self.site]), **environment})

    def started(self, *sites, **more):
        done = self.start(*sites, **more)
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertEqual(done.stderr, "")
        return json.loads(done.stdout)

    def refused(self, *sites, **more):
        done = self.start(*sites, **more)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertTrue(done.stderr.startswith("sluice: "), done.stderr)
        return done.stderr

    def test_becomes_the_program(self):
        home = self.add_torch(self.site)
        told = self.started(args=("train", "a b.yaml", "--set", "x=1"), OTHER="kept", LD_LIBRARY_PATH="/mine")
        self.assertEqual(told["argv"], ["train", "a b.yaml", "--set", "x=1"])
        env = told["env"]
        self.assertEqual(env["LD_LIBRARY_PATH"], f"{home}/lib:/mine")
        self.assertEqual(env["SLUICE_TORCH_ROOT"], home)
        self.assertEqual(env["SLUICE_SHIPPED"], os.path.join(self.site, "sluice"))
        self.assertEqual(env["OTHER"], "kept")
        self.assertNotIn("SLUICE_CUDA_REFUSED", env)

    def test_torch_in_another_site_folder(self):
        other = os.path.join(self.top, "user site")
        home = self.add_torch(other)
        for order in ((self.site, other), (other, self.site)):
            self.assertEqual(self.started(*order)["env"]["LD_LIBRARY_PATH"], f"{home}/lib")

    def test_the_torch_that_python_would_import(self):
        first = os.path.join(self.top, "first")
        self.add_torch(first, "2.12.1")
        self.add_torch(self.site)
        self.assertIn("2.12.1", self.refused(first, self.site))
        self.started(self.site, first)

    def test_no_torch(self):
        text = self.refused()
        self.assertIn("needs torch 2.11.0", text)
        self.assertIn("has no torch", text)
        self.assertIn(f"{sys.executable} -m pip install torch==2.11.0", text)

    def test_a_folder_named_torch_is_no_torch(self):
        os.makedirs(os.path.join(self.top, "torch"))
        self.assertIn("has no torch", self.refused())

    def test_another_version(self):
        home = self.add_torch(self.site, "2.10.1+cu128", "12.8")
        text = self.refused()
        for part in ("needs torch 2.11.0", f"{home} is torch 2.10.1+cu128", "-m pip install torch==2.11.0"):
            self.assertIn(part, text)
        self.add_torch(self.site, "2.11.0a0+git1234")
        self.assertIn("2.11.0a0+git1234", self.refused())

    def test_a_version_that_cannot_be_read(self):
        home = self.add_torch(self.site)
        os.remove(os.path.join(home, "version.py"))
        self.assertIn("of a version that no file there says", self.refused())

    def test_a_torch_without_its_library(self):
        home = self.add_torch(self.site)
        os.remove(os.path.join(home, "lib", "libtorch_cpu.so"))
        self.assertIn("has no lib/libtorch_cpu.so", self.refused())

    def test_torch_for_cpus_leaves_out_the_cuda_module(self):
        self.add_torch(self.site, "2.11.0+cpu", None)
        refusal = self.started()["env"]["SLUICE_CUDA_REFUSED"]
        for part in ("torch 2.11.0+cpu", "is for CPUs", "for CUDA 13", "--force-reinstall torch==2.11.0"):
            self.assertIn(part, refusal)

    def test_torch_for_another_cuda(self):
        self.add_torch(self.site, "2.11.0+cu128", "12.8")
        self.assertIn("is for CUDA 12.8; this Sluice needs torch 2.11.0 for CUDA 13",
                      self.started()["env"]["SLUICE_CUDA_REFUSED"])
        self.add_torch(self.site, "2.11.0+cu132", "13.2")
        self.assertNotIn("SLUICE_CUDA_REFUSED", self.started()["env"])

    def test_a_wheel_without_cuda(self):
        self.add_sluice(self.site, cuda="")
        self.add_torch(self.site)
        self.assertIn("packed without its CUDA module", self.started()["env"]["SLUICE_CUDA_REFUSED"])

    def test_a_given_torch(self):
        self.add_torch(self.site, "2.10.0")
        other = os.path.join(self.top, "libtorch")
        self.put(os.path.join(other, "build-version"), "2.11.0+cu130\n")
        self.put(os.path.join(other, "lib", "libtorch_cpu.so"))
        for given in (other, "libtorch"):
            env = self.started(SLUICE_TORCH_ROOT=given)["env"]
            self.assertEqual((env["SLUICE_TORCH_ROOT"], env["LD_LIBRARY_PATH"]), (other, f"{other}/lib"))
            self.assertNotIn("SLUICE_CUDA_REFUSED", env)
        self.assertIn("name another folder in SLUICE_TORCH_ROOT", self.refused(SLUICE_TORCH_ROOT="/nowhere"))

    def test_nvidia_libraries_in_another_site_folder(self):
        other = os.path.join(self.top, "system")
        cublas = os.path.join(other, "nvidia", "cu13", "lib")
        os.makedirs(cublas)
        os.makedirs(os.path.join(self.site, "nvidia", "nccl", "lib"))  # libtorch finds this by itself
        home = self.add_torch(self.site)
        self.assertEqual(self.started(self.site, other)["env"]["LD_LIBRARY_PATH"], f"{home}/lib:{cublas}")
        self.add_torch(self.site, "2.11.0+cpu", None)
        self.assertEqual(self.started(self.site, other)["env"]["LD_LIBRARY_PATH"], f"{home}/lib")

    def test_a_path_that_the_dynamic_linker_cannot_search(self):
        self.put(os.path.join(self.top, "a:b", "build-version"), "2.11.0")
        self.put(os.path.join(self.top, "a:b", "lib", "libtorch_cpu.so"))
        self.assertIn("has a colon in its path", self.refused(SLUICE_TORCH_ROOT="a:b"))

    def test_a_damaged_installation(self):
        self.add_torch(self.site)
        os.chmod(os.path.join(self.site, "sluice", "bin", "sluice"), 0o644)
        text = self.refused()
        self.assertIn("cannot start", text)
        self.assertIn("install the wheel again", text)

    def test_the_package_says_its_version_and_its_configurations(self):
        code = "import sluice; print(sluice.__version__, sluice.configs)"
        done = subprocess.run([sys.executable, "-S", "-B", "-c", code], capture_output=True, text=True, check=True,
                              env={"PYTHONPATH": self.site})
        self.assertEqual(done.stdout, f"0.1.0 {self.site}/sluice/configs\n")


if __name__ == "__main__":
    unittest.main()

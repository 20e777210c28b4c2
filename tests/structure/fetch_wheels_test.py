#!/usr/bin/env python3
"""cmake/fetch_wheels.py against a pip made up here: what is asked for, what is kept, what a failure leaves."""
import contextlib
import dataclasses
import hashlib
import io
import os
import sys
import tempfile
import textwrap
import unittest
import zipfile
from unittest import mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "cmake"))

import fetch_wheels as fetch  # noqa: E402

# Stands for `python3 -m pip`: notes its arguments and hands over a wheel prepared by the test.
FAKE_PIP = textwrap.dedent("""
    import os, shutil, sys
    if "FAKE_PIP_FAILS" in os.environ:
        sys.exit("no matching distribution")
    folder, requirement = sys.argv[sys.argv.index("--dest") + 1], sys.argv[-1]
    with open(os.environ["FAKE_PIP_LOG"], "a") as log:
        log.write(" ".join(sys.argv[1:]) + "\\n")
    shutil.copy(os.path.join(os.environ["FAKE_WHEELS"], requirement + ".whl"), folder)
""")


class Fetch(unittest.TestCase):
    LICENCE = "torch-2.11.0.dist-info/licenses/LICENSE"

    def setUp(self):
        self.root = self.enterContext(tempfile.TemporaryDirectory())
        self.dest = os.path.join(self.root, "third_party", "torch")
        self.log = os.path.join(self.root, "pip.log")
        self.wheels = os.path.join(self.root, "wheels")
        os.makedirs(os.path.join(self.root, "modules", "pip"))
        os.makedirs(self.wheels)
        # A package with __init__.py comes before the real pip; a bare folder would come after it.
        for name, text in (("__init__.py", ""), ("__main__.py", FAKE_PIP)):
            with open(os.path.join(self.root, "modules", "pip", name), "w", encoding="utf-8") as out:
                out.write(text)
        torch = fetch.TORCH_BASE.needed + fetch.TORCH_CUDA_LIBS
        self.wheel(fetch.TORCH, torch + ("torch/include/c10/a.h", "torch/lib/libtorch_python.so",
                                         "torch/bin/ptxas", "functorch/a.py", self.LICENCE))
        for part in fetch.ALWAYS + fetch.GPU:
            self.wheel(part.requirement, part.needed + ("nvidia/cu13/lib/libunwanted.so",))
        self.enterContext(mock.patch.dict(os.environ, {
            "PYTHONPATH": os.path.join(self.root, "modules"), "FAKE_PIP_LOG": self.log,
            "FAKE_WHEELS": self.wheels, "PYTHONDONTWRITEBYTECODE": "1",
            "PIP_NO_INDEX": "1"}))

    def wheel(self, requirement, names):
        with zipfile.ZipFile(os.path.join(self.wheels, requirement + ".whl"), "w") as archive:
            for name in names:
                archive.writestr(name, "new " + name)

    def run_main(self, *options):
        """(exit status, stderr)"""
        text = io.StringIO()
        text.isatty = lambda: False
        with contextlib.redirect_stderr(text), mock.patch.object(fetch.subprocess, "run", self.run_pip):
            status = fetch.main(["fetch", self.dest, *options])
        return status, text.getvalue()

    real_run = staticmethod(fetch.subprocess.run)

    def run_pip(self, command, **options):
        options["stdout"] = fetch.subprocess.DEVNULL
        return self.real_run(command, stderr=fetch.subprocess.DEVNULL, **options)

    def requested(self):
        if not os.path.exists(self.log):
            return []
        with open(self.log, encoding="utf-8") as log:
            return [line.split()[-1] for line in log]

    def files(self):
        return {os.path.relpath(os.path.join(at, n), self.dest)
                for at, _, names in os.walk(self.dest) for n in names}

    def leftovers(self):
        parent = os.path.dirname(self.dest)
        return [n for n in os.listdir(parent) if n != "torch"] if os.path.isdir(parent) else []

    def test_cpu_only(self):
        status, text = self.run_main()
        self.assertEqual(status, 0, text)
        self.assertEqual(self.requested(), [fetch.TORCH] + [p.requirement for p in fetch.ALWAYS])
        always = {f for p in fetch.ALWAYS for f in p.needed}
        self.assertEqual(self.files(),
                         set(fetch.TORCH_BASE.needed) | {"torch/include/c10/a.h", self.LICENCE} | always)
        self.assertEqual(self.leftovers(), [])
        self.assertIn("544 MB", text)
        self.assertLess(text.index("torch==2.11.0"), text.index("unpacking"))

    def test_arrow(self):
        self.wheel(fetch.PYARROW.requirement, fetch.PYARROW.needed + ("pyarrow/lib.so", "pyarrow/include/arrow/api.h"))
        self.assertEqual(self.run_main("--arrow", "--check")[0], 1)
        status, text = self.run_main("--arrow")
        self.assertEqual((status, self.files()), (4, set()))
        self.assertIn(f"expected {fetch.PYARROW.sha256}: the index serves another file; check pip's configuration, or set "
                      "SLUICE_ARROW_ROOT", text)
        with open(os.path.join(self.wheels, fetch.PYARROW.requirement + ".whl"), "rb") as wheel:
            this = dataclasses.replace(fetch.PYARROW, sha256=hashlib.sha256(wheel.read()).hexdigest())
        with mock.patch.object(fetch, "PYARROW", this):
            status, text = self.run_main("--arrow")
        self.assertEqual(status, 0, text)
        self.assertEqual(self.files(), set(fetch.PYARROW.needed) | {"pyarrow/include/arrow/api.h"})
        self.assertEqual(self.run_main("--arrow", "--check")[0], 0)

    def test_nothing_is_fetched_twice(self):
        self.assertEqual(self.run_main("--check")[0], 1)
        self.run_main()
        first = len(self.requested())
        self.assertEqual(self.run_main(), (0, ""))
        self.assertEqual(self.run_main("--check")[0], 0)
        self.assertEqual(len(self.requested()), first)

    def test_a_toolkit_found_later_adds_the_cuda_half(self):
        self.run_main()
        marker = os.path.join(self.dest, "torch", "kept")
        with open(marker, "w", encoding="utf-8"):
            pass
        self.assertEqual(self.run_main("--cuda", "--check")[0], 1)
        self.assertEqual(self.run_main("--cuda")[0], 0)
        self.assertEqual(self.requested()[3:], [fetch.TORCH])
        self.assertTrue(set(fetch.TORCH_CUDA_LIBS) <= self.files())
        self.assertTrue(os.path.exists(marker))

    def test_gpu_takes_all_in_one_go(self):
        self.assertEqual(self.run_main("--cuda", "--gpu")[0], 0)
        self.assertEqual(self.requested().count(fetch.TORCH), 1)
        self.assertTrue({f for p in fetch.GPU for f in p.needed} <= self.files())
        self.assertFalse(any("unwanted" in f for f in self.files()))

    def test_a_damaged_unpack_is_replaced(self):
        self.run_main()
        os.remove(os.path.join(self.dest, "torch", "lib", "libc10.so"))
        self.assertEqual(self.run_main()[0], 0)
        self.assertEqual(self.requested()[3:], [fetch.TORCH])
        self.assertEqual(self.run_main("--check")[0], 0)

    def test_pip_fails(self):
        with mock.patch.dict(os.environ, {"FAKE_PIP_FAILS": "1"}):
            status, text = self.run_main()
        self.assertEqual(status, 4)
        self.assertIn("pip could not download torch==2.11.0", text)
        self.assertIn("SLUICE_TORCH_ROOT", text)
        self.assertEqual((self.files(), self.leftovers()), (set(), []))

    def test_a_cut_wheel_is_not_taken(self):
        path = os.path.join(self.wheels, fetch.TORCH + ".whl")
        with open(path, "r+b") as wheel:
            wheel.truncate(os.path.getsize(path) // 2)
        status, text = self.run_main()
        self.assertEqual(status, 4)
        self.assertIn("damaged", text)
        self.assertEqual((self.files(), self.leftovers()), (set(), []))

    def test_a_wheel_of_another_kind(self):
        self.wheel(fetch.TORCH, ("torch/nn/functional.py",))
        status, text = self.run_main()
        self.assertEqual(status, 4)
        self.assertIn("is not the wheel of torch==2.11.0 for Linux on x86-64", text)
        self.assertEqual(self.files(), set())

    def test_leftovers_of_a_killed_run_are_cleared(self):
        os.makedirs(self.dest + ".part/unpacked/torch/lib")
        self.assertEqual(self.run_main()[0], 0)
        self.assertEqual(self.leftovers(), [])

    def test_no_space(self):
        little = mock.Mock(free=1000 * fetch.MB)
        with mock.patch.object(fetch.shutil, "disk_usage", return_value=little):
            status, text = self.run_main("--cuda")
        self.assertEqual(status, 4)
        self.assertIn("has 1000 MB free and libtorch needs 2188 MB", text)
        self.assertEqual(self.requested(), [])

    def test_a_folder_that_cannot_be_written(self):
        with open(os.path.join(self.root, "third_party"), "w", encoding="utf-8"):
            pass
        status, text = self.run_main()
        self.assertEqual(status, 4)
        self.assertIn("cannot unpack libtorch into", text)


if __name__ == "__main__":
    unittest.main()

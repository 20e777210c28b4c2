#!/usr/bin/env python3
"""./sluice on a made-up machine: what the wrapper calls, and what it says."""
import os
import shutil
import subprocess
import time
import unittest

from made_up_machine import MadeUpMachine


class Wrapper(MadeUpMachine):
    def test_a_bare_machine(self):
        done = self.sluice("train", "x.yaml", "--set", "a.b=c d")
        self.assertEqual((done.returncode, done.stdout), (7, "program train x.yaml --set a.b=c d\n"), done.stderr)
        order = [c for c in self.calls() if not c.startswith(("dpkg-query", "sudo"))]
        steps = ["update", " --assume-no ", " install -y ", "fetch_wheels.py", "cmake --preset release", "ninja -C"]
        at = [next(i for i, c in enumerate(order) if s in c and "--check" not in c) for s in steps]
        self.assertEqual(at, sorted(at), order)
        installed = order[at[2]]
        for package in ("cmake", "ninja-build", "g++", "python3", "python3-pip", "libyaml-cpp-dev", "ccache"):
            self.assertIn(f" {package}", installed)
        self.assertIn("Need to get 9 MB", done.stderr)
        self.assertTrue(order[-1].endswith(" sluice_cli"), order)

    def test_the_second_start_calls_no_tool(self):
        self.ready()
        begin = time.monotonic()
        done = self.sluice("plan")
        self.assertLess(time.monotonic() - begin, 5)
        self.assertEqual((done.stdout, done.stderr, self.calls()), ("program plan\n", "", []))

    def test_what_makes_it_build_again(self):
        self.ready()

        def builds():
            self.sluice("x")
            built = any(c.startswith("ninja") and "-n" not in c.split() for c in self.calls())
            self.assertEqual(self.sluice("x").stderr, "")  # and once is enough
            self.assertEqual(self.calls(), [])
            return built

        self.put(self.source, "edited")
        self.assertTrue(builds())
        os.utime(self.source, (1, 1))  # an old date, as tar and rsync set it
        self.assertTrue(builds())
        os.remove(self.source)
        self.assertTrue(builds())
        self.put(os.path.join(self.root, "cmake", "new.cmake"))
        self.assertTrue(builds())
        self.put(os.path.join(self.root, "notes.md"))
        self.assertFalse(builds())

    def test_nothing_to_do_is_silent(self):
        self.ready()
        self.flag("nothing-to-do")
        self.put(self.source, "edited")
        done = self.sluice("x")
        self.assertEqual((done.stdout, done.stderr), ("program x\n", ""))

    def test_packages_that_may_not_be_installed(self):
        done = self.sluice("train", SLUICE_INSTALL="no")
        self.assertEqual(done.returncode, 2)
        line = done.stderr.strip().splitlines()[-1]
        self.assertRegex(line, r"^(sudo )?apt-get update && (sudo )?apt-get install -y .* libgloo-dev .*")
        self.assertFalse(any(c.startswith("apt-get") for c in self.calls()))

    def test_no_apt(self):
        os.remove(os.path.join(self.bin, "apt-get"))
        done = self.sluice("train")
        self.assertEqual(done.returncode, 2)
        self.assertIn("under Debian's names", done.stderr)

    def test_apt_fails(self):
        self.flag("apt-fails")
        done = self.sluice("train")
        self.assertEqual(done.returncode, 4)
        self.assertIn("E: no network", done.stderr)
        self.assertIn("apt-get update failed", done.stderr)

    def test_a_given_libtorch_is_not_fetched(self):
        given = os.path.join(self.top, "given")
        os.makedirs(os.path.join(given, "lib"))
        self.assertEqual(self.sluice("x", SLUICE_TORCH_ROOT=given).returncode, 2)
        self.put(os.path.join(given, "lib", "libtorch_cpu.so"))
        self.calls()
        self.assertEqual(self.sluice("x", SLUICE_TORCH_ROOT=given).returncode, 7)
        calls = self.calls()
        self.assertFalse(any("fetch_wheels" in c for c in calls), calls)
        self.assertFalse(any("python3-pip" in c for c in calls), calls)
        self.assertTrue(any(f"-DTORCH_ROOT={given}" in c for c in calls), calls)
        # Another libtorch is another configuration.
        self.sluice("x")
        self.assertTrue(any("--fresh" in c for c in self.calls()))

    def toolkit(self, name):
        """A CUDA toolkit: the path of its bin/, with an nvcc."""
        folder = os.path.join(self.top, name, "bin")
        os.makedirs(folder)
        self.put(os.path.join(folder, "nvcc"), "#!/bin/sh\n")
        os.chmod(os.path.join(folder, "nvcc"), 0o755)
        return folder

    def with_nvcc(self, folder):
        return {"SLUICE_CUDA": "AUTO", "PATH": f"{self.bin}:{folder}"}

    def test_one_toolkit_under_two_paths_is_one_configuration(self):
        real = self.toolkit("cuda-13.0")
        os.symlink(os.path.dirname(real), os.path.join(self.top, "cuda"))
        self.assertEqual(self.sluice("x", **self.with_nvcc(real)).returncode, 7)
        self.calls()
        done = self.sluice("x", **self.with_nvcc(os.path.join(self.top, "cuda", "bin")))
        self.assertEqual((done.stderr, self.calls()), ("", []))
        self.sluice("x", **self.with_nvcc(self.toolkit("cuda-12.9")))
        self.assertTrue(any("--fresh" in c for c in self.calls()))

    def test_the_cuda_module_waits_for_a_gpu_or_for_a_build_of_everything(self):
        nvcc = self.with_nvcc(self.toolkit("cuda"))
        gpu = {"LD_PRELOAD": os.path.join(self.top, "libcuda.so.1")}

        def configured(*args, **extra):
            self.sluice(*args, **nvcc, **extra)
            return [c.split("-DSLUICE_CUDA=")[1].split()[0] for c in self.calls() if "--preset release" in c]

        done = self.sluice("x", **nvcc)
        self.assertIn("no GPU is visible: the CUDA module waits for one", done.stderr)
        self.assertTrue(any("-DSLUICE_CUDA=OFF" in c for c in self.calls()))
        self.assertEqual(configured("x"), [])
        self.assertEqual(configured("x", **gpu), ["AUTO", "AUTO"])
        self.assertEqual(configured("x"), [])  # the GPU left: the module stays
        shutil.rmtree(os.path.join(self.root, "build"))
        self.assertEqual(configured("x"), ["OFF"])
        self.assertEqual(configured("test"), ["AUTO", "AUTO"])
        self.assertEqual(configured("x"), [])

    def test_a_configuration_that_fails_leaves_the_one_before(self):
        self.ready()
        cache = os.path.join(self.root, "build", "release", "CMakeCache.txt")
        with open(cache, encoding="utf-8") as stream:
            before = stream.read()
        self.flag("cmake-fails")
        done = self.sluice("x", SLUICE_UNITY_TESTS="ON")
        self.assertEqual(done.returncode, 1)
        self.assertIn("CMake Error: bad", done.stderr)
        self.assertIn("the build is as it was", done.stderr)
        with open(cache, encoding="utf-8") as stream:
            self.assertEqual(stream.read(), before)
        self.assertEqual(os.listdir(os.path.join(self.root, "build")).count("release.trial"), 0)
        self.calls()
        self.put(self.source, "edited")
        self.assertEqual(self.sluice("x").stdout, "program x\n")  # built, without configuring
        self.assertFalse(any(c.startswith("cmake") for c in self.calls()))
        os.remove(os.path.join(self.state, "cmake-fails"))
        self.assertEqual(self.sluice("x", SLUICE_UNITY_TESTS="ON").returncode, 7)

    def test_a_cuda_module_that_went_missing_is_built_again(self):
        self.flag("builds-the-module")
        self.ready()
        module = os.path.join(self.root, "build", "release", "libsluice_cuda.so")
        self.assertEqual((self.sluice("x").stderr, self.calls()), ("", []))
        os.remove(module)
        self.sluice("x")
        self.assertTrue(os.path.exists(module))

    def test_arrow_is_fetched_when_parquet_needs_it(self):
        self.ready()

        def fetched():
            calls = self.calls()
            at = [i for i, c in enumerate(calls) if "--arrow" in c]
            later = [c for c in calls[at[0]:] if c.startswith(("cmake", "ninja"))] if at else []
            self.assertTrue(all("arrow-26" in c for c in later if "preset" in c), calls)
            return len(at), bool(later)

        self.assertEqual((self.sluice("data", "clean", "x.parquet").returncode, fetched()), (7, (1, True)))
        self.assertEqual((self.sluice("data", "clean", "x.parquet").returncode, fetched()), (7, (0, False)))
        shutil.rmtree(os.path.join(self.root, "third_party", "arrow-26.0.1"))
        self.sluice("x")
        self.calls()
        done = self.sluice("parquet")
        self.assertEqual((done.returncode, done.stdout, fetched()), (0, "", (1, True)), done.stderr)
        done = self.sluice("parquet", SLUICE_ARROW_ROOT=os.path.join(self.top, "nowhere"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("nowhere has no include/parquet/arrow/reader.h", done.stderr)

    def test_a_preloaded_driver_is_a_gpu_whose_libraries_are_not_fetched(self):
        nvcc = self.with_nvcc(self.toolkit("cuda"))
        preload = os.path.join(self.top, "libcuda.so.1")
        done = self.sluice("x", LD_PRELOAD=preload, **nvcc)
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertTrue(any("--cuda --gpu" in c for c in self.calls()))
        both = f"{preload} {os.path.join(self.top, 'libcudart.so.13')}"
        self.assertEqual((self.sluice("x", LD_PRELOAD=both, **nvcc).returncode, self.calls()), (7, []))
        self.put(self.source, "edited")
        self.sluice("x", LD_PRELOAD=both, **nvcc)
        self.assertFalse(any("--gpu" in c for c in self.calls()))
        without = self.sluice("x", LD_PRELOAD=both, SLUICE_CUDA="AUTO", PATH=self.bin)
        if not os.path.exists("/usr/local/cuda/bin/nvcc"):
            self.assertIn("there is a GPU but no CUDA toolkit", without.stderr)

    def test_failures_leave_nothing_that_looks_done(self):
        for name, status, part in (("fetch-fails", 4, ""), ("cmake-fails", 1, "CMake Error: bad"),
                                   ("ninja-fails", 1, "b.cpp:1: error: bad")):
            self.flag(name)
            for _ in range(2):
                done = self.sluice("x")
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertIn(part, done.stderr)
                self.assertNotIn("Building CXX", done.stderr)
            os.remove(os.path.join(self.state, name))
        self.assertEqual(self.sluice("x").returncode, 7)

    def test_two_starts_build_once(self):
        self.ready()
        self.flag("ninja-is-slow")
        self.put(self.source, "edited")
        starts = [subprocess.Popen([os.path.join(self.root, "sluice"), "x"], env=self.environment(),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
        outputs = [start.communicate(timeout=60) for start in starts]
        self.assertEqual([out for out, _ in outputs], ["program x\n"] * 3)
        built = [c for c in self.calls() if c.startswith("ninja") and "-n" not in c.split()]
        self.assertEqual(len(built), 1)
        self.assertEqual(sum("waiting for it" in err for _, err in outputs), 2)

    def test_a_long_build_says_how_far_it_is(self):
        self.flag("ninja-is-slow")
        wrapper = os.path.join(self.root, "cmake", "wrapper_build.bash")
        with open(wrapper, encoding="utf-8") as stream:
            text = stream.read()
        self.assertIn("progress_seconds=15", text)
        self.put(wrapper, text.replace("progress_seconds=15", "progress_seconds=1"))
        done = self.sluice("x")
        self.assertEqual((done.returncode, done.stdout), (7, "program x\n"), done.stderr)
        said = [line for line in done.stderr.splitlines() if "steps done" in line]
        self.assertRegex(said[0], r"^sluice: 25 of 100 steps done \(25 %\) after 0:0[1-3], about 0:0[3-9] left$")
        self.assertNotIn("Building CXX", done.stderr)

    def test_on_a_terminal_the_line_stays_in_place(self):
        self.flag("ninja-is-slow")
        terminal, stderr = os.openpty()
        done = subprocess.run([os.path.join(self.root, "sluice"), "x"], env=self.environment(TERM="xterm"), stderr=stderr,
                              stdout=subprocess.PIPE, text=True, timeout=60, check=False)
        os.close(stderr)
        said = os.read(terminal, 65536).decode()
        os.close(terminal)
        self.assertEqual((done.returncode, done.stdout), (7, "program x\n"), said)
        self.assertRegex(said, r"\r\x1b\[Ksluice: 25 of 100 steps done [^\r\n]* left\r\x1b\[K")
        self.assertRegex(said, r"\r\x1b\[Ksluice: built in \d+ s\r\n$")

    def test_the_first_build_joins_sources_and_stays_as_it_is(self):
        def joined(**extra):
            self.put(self.source, "edited" + str(extra))
            done = self.sluice("x", **extra)
            self.assertEqual(done.stdout, "program x\n", done.stderr)
            configured = [c for c in self.calls() if "--preset" in c]
            return [c.split("-DSLUICE_UNITY=")[1].split()[0] for c in configured]

        self.assertEqual(joined(), ["ON"])
        self.assertEqual(joined(), [])
        self.assertEqual(joined(SLUICE_UNITY="ON"), [])
        self.assertEqual(joined(SLUICE_UNITY="OFF"), ["OFF", "OFF"])  # tried, then done
        self.assertEqual(joined(), [])
        self.assertEqual(joined(SLUICE_UNITY="ON"), ["ON", "ON"])
        self.assertEqual(joined(), [])
        done = self.sluice("x", SLUICE_UNITY="yes")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("SLUICE_UNITY is yes; set it to ON or OFF", done.stderr)

    def test_a_build_from_before_stays_as_it_is(self):
        self.assertEqual(self.sluice("x", SLUICE_UNITY="OFF").returncode, 7)
        configured = os.path.join(self.root, "build", "release", ".configured-from")
        with open(configured, encoding="utf-8") as stream:
            self.assertNotIn("unity", stream.read())
        self.calls()
        self.assertEqual((self.sluice("x").stderr, self.calls()), ("", []))

    def test_tests(self):
        self.assertEqual(self.sluice("test", "-R", "zero").returncode, 0)
        calls = self.calls()
        self.assertEqual(calls[-1], "ctest --preset fast -R zero")
        self.assertTrue(any(c.startswith("ninja") and c.endswith(" all") for c in calls), calls)
        self.sluice("test", SLUICE_UNITY_TESTS="ON")  # another configuration
        self.assertTrue(any("--fresh" in c and c.endswith("-DSLUICE_UNITY_TESTS=ON") for c in self.calls()))
        self.sluice("test", "--all")
        self.assertEqual(self.calls()[-1], "ctest --preset all")

    def test_package_sets_up_and_calls_the_packer(self):
        done = self.sluice("package", "wheel", "--device", "cpu", "-o", "a b")
        self.assertEqual(done.returncode, 0, done.stderr)
        calls = self.calls()
        self.assertTrue(calls[-1].endswith("cmake/package/package.py wheel --device cpu -o a b"), calls)
        self.assertTrue(any("fetch_wheels.py" in c and "--check" not in c for c in calls), calls)
        self.assertFalse(any(c.startswith(("cmake", "ninja")) for c in calls), calls)
        self.sluice("package", "docker")
        self.assertEqual([c.split("/")[-1] for c in self.calls()], ["package.py docker"])
        os.remove(os.path.join(self.state, "installed", "python3-pip"))  # the tools that pack come by pip
        self.sluice("package", "archive")
        self.assertTrue(any(" install -y " in c and "python3-pip" in c for c in self.calls()))

    def test_help_needs_nothing(self):
        done = self.sluice("help-setup")
        self.assertEqual((done.returncode, self.calls()), (0, []))
        self.assertIn("SLUICE_TORCH_ROOT", done.stdout)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""The checks of this folder against good and bad samples: a check that cannot fail is none."""
import contextlib
import io
import json
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)

import check_compile_times  # noqa: E402
import class_sizes  # noqa: E402
import include_direction  # noqa: E402
import library_symbols  # noqa: E402
import links  # noqa: E402
import source_sizes  # noqa: E402

TORCH_TENSOR = "<ATen/core/Tensor.h>"


def run(sources):
    """Violations of a tree given as {path: source text or list of includes}."""
    files = {}
    for path, text in sources.items():
        if isinstance(text, list):
            text = "".join(f"#include {header}\n" for header in text)
        files[path] = list(include_direction.includes_of(text))
    return include_direction.violations(files)


class IncludeDirection(unittest.TestCase):
    TARGETS = {path: [] for path in (
        "base/error.hpp", "kernels/cpu/update/adamw.hpp", "offload/store.hpp",
        "parallel/comm/communicator.hpp", "parallel/mesh.hpp", "zero/shard.hpp",
        "runtime/engine/engine.hpp", "runtime/cli/commands.hpp", "configs/reader.hpp",
        "zero/zero_options.hpp", "tests/kernels/helper.hpp")}

    def violations(self, path, *headers):
        return run({**self.TARGETS, path: list(headers)})

    def refused(self, path, header, part):
        found = self.violations(path, header)
        self.assertEqual(len(found), 1, f"{path} -> {header}: {found}")
        self.assertIn(part, found[0])
        self.assertTrue(found[0].startswith(f"{path}:1: "), found[0])

    def test_each_arrow(self):
        base, kernels = '"base/error.hpp"', '"kernels/cpu/update/adamw.hpp"'
        comm, parallel = '"parallel/comm/communicator.hpp"', '"parallel/mesh.hpp"'
        zero, offload = '"zero/shard.hpp"', '"offload/store.hpp"'
        engine, cli = '"runtime/engine/engine.hpp"', '"runtime/cli/commands.hpp"'
        configs, options = '"configs/reader.hpp"', '"zero/zero_options.hpp"'
        everything = [base, kernels, comm, parallel, zero, offload, engine, cli, configs, options]
        allowed = {
            "base/a.cpp": [base],
            "kernels/cpu/a.cpp": [base, kernels],
            "parallel/comm/a.cpp": [base, kernels, comm],
            "parallel/tensor/a.cpp": [base, kernels, comm, parallel],
            "offload/a.cpp": [base, kernels, offload],
            "zero/a.cpp": [base, kernels, comm, zero, offload, options],
            "runtime/plan/a.cpp": [base, kernels, comm, parallel, zero, offload, engine, options],
            "configs/a.cpp": [base, configs, options],
            "runtime/cli/a.cpp": everything,
            "tests/zero/a.cpp": everything,
            "examples/a.cpp": everything,
        }
        for path, good in allowed.items():
            for header in everything:
                if header in good:
                    self.assertEqual(self.violations(path, header), [])
                else:
                    self.refused(path, header, "may not include")

    def test_each_arrow_between_rooms(self):
        rooms = include_direction.ROOMS
        headers = {room: f"runtime/{room}/a.hpp" for room in rooms}
        for room in rooms:
            for other, header in headers.items():
                path = f"runtime/{room}/folder/b.cpp"
                found = run({**{h: [] for h in headers.values()}, path: [f'"{header}"']})
                if other == room or other in rooms[room]:
                    self.assertEqual(found, [], f"{room} -> {other}")
                else:
                    self.assertEqual(len(found), 1, f"{room} -> {other}: {found}")
                    self.assertIn(f"runtime/{room} may not include runtime/{other}", found[0])

    def test_arrows_between_rooms_have_no_cycle(self):
        below = {}
        while len(below) < len(include_direction.ROOMS):
            ready = [room for room, targets in include_direction.ROOMS.items()
                     if room not in below and targets <= below.keys()]
            self.assertTrue(ready, f"a cycle above {sorted(below)}")
            below.update(dict.fromkeys(ready))

    def test_rooms_and_option_headers(self):
        sources = {"runtime/run/run_options.hpp": [], "runtime/data/a.cpp": ['"runtime/run/run_options.hpp"']}
        self.assertEqual(run(sources), [])
        self.assertEqual(run({"runtime/cli/a.cpp": ['"runtime/run/b.hpp"'], "runtime/run/b.hpp": []}), [])
        found = run({"runtime/new/a.cpp": ['"runtime/data/b.hpp"'], "runtime/data/b.hpp": []})
        self.assertEqual(len(found), 1)
        self.assertIn("runtime/new is no room", found[0])
        found = run({"runtime/data/b.hpp": ['"runtime/cli/a.hpp"'], "runtime/cli/a.hpp": []})
        self.assertIn("runtime may not include cli", found[0])

    def test_an_arrow_that_nobody_needs(self):
        files = {"runtime/launch/a.cpp": [(1, True, "runtime/observe/b.hpp")], "runtime/observe/b.hpp": [],
                 "runtime/generate/a.cpp": [(1, True, "runtime/data/data_options.hpp")], "runtime/data/data_options.hpp": []}
        unused = list(include_direction.unused_arrows(files))
        self.assertEqual(len(unused), 1, unused)
        self.assertIn("no file of runtime/generate includes runtime/data", unused[0])

    def test_option_headers_stay_light(self):
        self.refused("zero/b_options.hpp", '"zero/shard.hpp"', "an option header includes only")
        self.assertEqual(self.violations("zero/b_options.hpp", '"base/error.hpp"'), [])

    def test_pure_files(self):
        for path in ("zero/partition_plan.cpp", "runtime/program/program.hpp"):
            self.refused(path, TORCH_TENSOR, "without libtorch")
            self.refused(path, "<c10/core/ScalarType.h>", "without libtorch")
            self.refused(path, "<cuda_runtime.h>", "no CUDA")
            self.refused(path, "<nccl.h>", "no CUDA")
            for header in ("<chrono>", "<thread>", "<mutex>", "<condition_variable>"):
                self.refused(path, header, "no clock and no thread")
        self.assertEqual(self.violations("runtime/program/executor.cpp", TORCH_TENSOR, "<thread>"), [])
        self.assertEqual(self.violations("tests/runtime/program/a_plan.cpp", "<thread>"), [])

    def test_torch_through_an_own_header(self):
        sources = {"zero/shard.hpp": [TORCH_TENSOR],
                   "zero/middle.hpp": ['"zero/shard.hpp"'],
                   "zero/partition_plan.cpp": ['"zero/middle.hpp"']}
        found = run(sources)
        self.assertEqual(len(found), 1)
        self.assertIn("brings in ATen/core/Tensor.h through zero/shard.hpp", found[0])

    def test_foreign_libraries(self):
        self.refused("runtime/cli/a.cpp", "<yaml-cpp/yaml.h>", "only configs/")
        self.assertEqual(self.violations("configs/a.cpp", "<yaml-cpp/yaml.h>"), [])
        self.refused("kernels/cpu/a.cpp", "<ATen/core/Tensor.h>", "without libtorch")
        self.refused("zero/a.cu", "<ATen/core/Tensor.h>", ".cu files")
        self.assertEqual(self.violations("kernels/cuda/a.cu", "<cuda_runtime.h>"), [])

    def test_spelling(self):
        self.refused("zero/a.cpp", '"shard.hpp"', "from the root")
        self.refused("zero/a.cpp", "<zero/shard.hpp>", "quotes")
        self.assertEqual(len(self.violations("zero/a.cpp", '  "offload/none.hpp"')), 1)

    def test_an_example_includes_what_lies_beside_it(self):
        sources = {"examples/a/main.cpp": ['"model.hpp"'], "examples/a/model.hpp": [], "zero/plan.hpp": []}
        self.assertEqual(run(sources), [])
        self.assertEqual(len(run({**sources, "zero/a.cpp": ['"plan.hpp"']})), 1)
        self.assertEqual(len(run({**sources, "examples/a/main.cpp": ['"other.hpp"']})), 1)

    def test_comments_and_spaces(self):
        text = '/* #include "x.hpp"\n#include "y.hpp"\n*/\n// #include "z.hpp"\n#  include "w.hpp"\n'
        self.assertEqual(list(include_direction.includes_of(text)), [(5, True, "w.hpp")])

    def test_the_script_ends_with_1_on_a_bad_tree(self):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "kernels"))
            with open(os.path.join(root, "kernels", "a.cpp"), "w", encoding="utf-8") as out:
                out.write("#include <torch/torch.h>\n")
            self.assertEqual(include_direction.main(["x", root]), 1)
        with tempfile.TemporaryDirectory() as root:
            self.assertEqual(include_direction.main(["x", root]), 2)


class SourceSizes(unittest.TestCase):
    def test_sizes_of_a_tree(self):
        with tempfile.TemporaryDirectory() as root:
            for path, lines in (("zero/a.cpp", 400), ("zero/b.cpp", 401), ("zero/words.txt", 900),
                                ("build/c.cpp", 900), ("third_party/d.hpp", 900), (".ci/run", 600)):
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as out:
                    out.write("x\n" * lines)
            with open(os.path.join(root, "zero", "c.hpp"), "w", encoding="utf-8") as out:
                out.write("class Wide {\n" + "  int x_;\n" * 26 + "};\n")
            lines, files, private = source_sizes.sizes(root)
        self.assertEqual(lines, {".ci/run": 600, "zero/a.cpp": 400, "zero/b.cpp": 401, "zero/c.hpp": 28})
        self.assertEqual(files, {".": 0, ".ci": 1, "zero": 4})
        self.assertEqual(private, {"zero/c.hpp Wide": 26})

    def complaints(self, found, exceptions):
        return [line.split(";")[0] for line in source_sizes.complaints(found, 400, exceptions, "lines")]

    def test_limit(self):
        self.assertEqual(self.complaints({"a": 400, "b": 401}, {}), ["b: 401 lines, the limit is 400"])

    def test_exceptions_only_shrink(self):
        self.assertEqual(self.complaints({"a": 450}, {"a": 450}), [])
        self.assertEqual(self.complaints({"a": 430}, {"a": 450}), [])
        self.assertEqual(self.complaints({"a": 451}, {"a": 450}), ["a: 451 lines, the limit is 450"])
        self.assertEqual(self.complaints({"a": 400}, {"a": 450}), ["a: 400 lines, within the limit of 400"])
        self.assertEqual(self.complaints({}, {"gone": 450}), ["gone: 0 lines, within the limit of 400"])


class ClassSizes(unittest.TestCase):
    def count(self, body):
        return dict(class_sizes.private_counts(body))

    def test_members_and_functions_in_private_sections(self):
        self.assertEqual(self.count("class A { int a_; public: int b; void f(); private: int c_ = 1; void g() const; };"),
                         {"A": 3})
        self.assertEqual(self.count("struct A { int a; private: int b; };"), {"A": 1})
        self.assertEqual(self.count("class A final : public B, private C<int> { int a_{1}; std::vector<int> b_{}; };"), {"A": 2})

    def test_bodies_count_once(self):
        self.assertEqual(self.count("class A { A(int x) : a_{x}, b_(x) { if (x) { f(); } } int a_; int b_; };"), {"A": 3})
        self.assertEqual(self.count("class A { void f() { int x; for (;;) { g(x); } } void g(std::function<void()> h = [] { ; }); };"),
                         {"A": 2})

    def test_not_counted(self):
        self.assertEqual(self.count("class A { using B = int; friend class C; enum class D { x, y }; struct E; class F; "
                                    "static_assert(true); };"), {"A": 0})
        self.assertEqual(self.count("class A { struct B { int x; int y; }; struct C { int z; } c_; };"), {"A": 1, "B": 0, "C": 0})
        self.assertEqual(self.count('class A { // int x_;\n /* int y_; */ const char* z_ = "; int w_;"; };'), {"A": 1})

    def test_templates_and_what_is_no_class(self):
        self.assertEqual(self.count("template <class T, class U> class A { T a_; };"), {"A": 1})
        self.assertEqual(self.count("enum class A { x }; void f() { struct { int y; } z; } int a[] = {1, 2};"), {})


class Links(unittest.TestCase):
    def test_files_and_headings(self):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "docs"))
            for path, text in (("README.md", "# The `a` room\n[x](docs/b.md) [y](docs/b.md#two-words) [z](#the-a-room)\n"),
                               ("docs/b.md", "## Two words\n[up](../README.md) [site](https://x.org)\n"
                                             "[`gone` x](c.md) and `a` [none](../README.md#b)\n    [code](d.md)\n`[x](e.md)`\n")):
                with open(os.path.join(root, path), "w", encoding="utf-8") as out:
                    out.write(text)
            self.assertEqual(list(links.broken(root)), ["docs/b.md:3: c.md: no such file",
                                                        "docs/b.md:3: ../README.md#b: no such heading"])


class CompileTimes(unittest.TestCase):
    PLAIN = "c++ -c"
    FENCED = f"c++ -I/t/{check_compile_times.TORCH_API} -D{check_compile_times.FENCE} -c"
    WIDE = f"c++ -I/t/{check_compile_times.TORCH_API} -c"

    def units(self, rows):
        """rows: (source, command, [milliseconds of each log entry])."""
        with tempfile.TemporaryDirectory() as build:
            commands, log = [], ["# ninja log v5"]
            for source, command, times in rows:
                commands.append({"file": os.path.join(ROOT, source), "directory": build,
                                 "command": f"{command} -o {source}.o"})
                log += [f"10\t{10 + ms}\t0\t{source}.o\tabc" for ms in times]
            with open(os.path.join(build, "compile_commands.json"), "w", encoding="utf-8") as out:
                json.dump(commands, out)
            path = os.path.join(build, ".ninja_log")
            with open(path, "w", encoding="utf-8") as out:
                out.write("\n".join(log + ["7\t9"]) + "\n")
            return check_compile_times.read_units(path, ROOT)

    def complaints(self, rows, retime=None):
        return list(check_compile_times.complaints(check_compile_times.suspects(self.units(rows), 5.0), 5.0, retime))

    def test_slow_units_are_named(self):
        found = self.complaints([("zero/slow.cpp", self.FENCED, [5100]), ("zero/ok.cpp", self.FENCED, [4900]),
                                 ("kernels/slow.cpp", self.PLAIN, [7000])])
        self.assertEqual([line.split(":")[0] for line in found], ["kernels/slow.cpp", "zero/slow.cpp"])

    def test_the_fastest_entry_counts(self):
        self.assertEqual(self.complaints([("zero/a.cpp", self.FENCED, [9000, 4000])]), [])

    def test_exempt(self):
        rows = [("zero/a_bridge.cpp", self.WIDE, [20000]), ("kernels/cuda/a.cu", "nvcc", [20000]),
                ("tests/zero/a_test.cpp", self.WIDE, [20000])]
        self.assertEqual(self.complaints(rows), [])
        self.assertEqual(len(self.complaints([("tests/zero/a_test.cpp", self.FENCED, [20000])])), 1)

    def test_a_wide_source_that_is_no_bridge(self):
        self.assertEqual(len(self.complaints([("zero/a.cpp", self.WIDE, [5100])])), 1)

    def test_joined_sources_are_timed_alone(self):
        with tempfile.TemporaryDirectory() as build:
            joined = os.path.join(build, "Unity", "unity_0_cxx.cxx")
            os.makedirs(os.path.dirname(joined))
            with open(joined, "w", encoding="utf-8") as out:
                out.write("/* generated */\n\n" + "".join(
                    f'#include "{ROOT}/tests/zero/{name}_test.cpp"\n\n' for name in "ab"))
            with open(os.path.join(build, "compile_commands.json"), "w", encoding="utf-8") as out:
                json.dump([{"file": joined, "directory": build, "command": f"c++ -o a.o -c {joined}"}], out)
            log = os.path.join(build, ".ninja_log")
            with open(log, "w", encoding="utf-8") as out:
                out.write("# ninja log v5\n10\t9010\t0\ta.o\tabc\n")
            units = check_compile_times.read_units(log, ROOT)
        self.assertEqual([u.source for u in units], ["tests/zero/a_test.cpp", "tests/zero/b_test.cpp"])
        self.assertTrue(units[1].command.endswith(f"-c {ROOT}/tests/zero/b_test.cpp"))
        alone = {"tests/zero/a_test.cpp": 4.0, "tests/zero/b_test.cpp": 6.0}
        suspects, complaints = check_compile_times.suspects, check_compile_times.complaints
        found = list(complaints(suspects(units, 5.0), 5.0, lambda unit: alone[unit.source]))
        self.assertEqual([line.split(":")[0] for line in found], ["tests/zero/b_test.cpp"])
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(list(complaints(suspects(units, 5.0), 5.0, lambda unit: 9.0, joined_seconds=0)), [])
        self.assertTrue(said.getvalue().startswith("2 sources"), said.getvalue())
        self.assertEqual(suspects(units, 9.5), [])
        self.assertEqual([u.source for u in suspects(units, 5.0, {"tests/zero/a_test.cpp"})], ["tests/zero/a_test.cpp"])

    def test_retiming_forgives_waiting_only(self):
        rows = [("zero/a.cpp", self.FENCED, [9000])]
        self.assertEqual(self.complaints(rows, lambda unit: 3.0), [])
        self.assertEqual(len(self.complaints(rows, lambda unit: 6.0)), 1)

    def test_not_a_log(self):
        with self.assertRaises(ValueError):
            check_compile_times.read_log(os.path.abspath(__file__))


class LibrarySymbols(unittest.TestCase):
    def test_strong_names_outside_the_namespace(self):
        nm = ("a.o:\n0000 T _ZN6sluice5checkEb\n0010 V _ZTVN6sluice5ErrorE\n0020 W _ZNSt6vectorIiE\n"
              "b.o:\n0000 T mkl_serv_intel_cpu_true\n0030 D counter\n")
        self.assertEqual(list(library_symbols.foreign_symbols(nm)),
                         [("b.o", "mkl_serv_intel_cpu_true"), ("b.o", "counter")])


if __name__ == "__main__":
    unittest.main()

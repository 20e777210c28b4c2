"""The licence texts of what a package takes in from other projects, from Debian's packages."""
import os
import re
import shutil
import subprocess

from building import say, tool_environment

# Headers whose code the compiler puts into the program; no library of theirs is linked.
HEADERS = ("libcli11-dev", "nlohmann-json3-dev", "libtomlplusplus-dev", "libxxhash-dev", "libgloo-dev")
# Every Linux has these; a package leaves them out.
OF_THE_SYSTEM = {"libc6", "libgcc-s1", "libstdc++6"}


def linked_files(build):
    """The shared libraries that the program loads, without libtorch's folder."""
    files = []
    for binary in [build.program] + ([build.module] if build.has_cuda() else []):
        done = subprocess.run(["ldd", binary], env=tool_environment(build), capture_output=True, text=True, check=False)
        files += re.findall(r"=> (/\S+) \(0x", done.stdout)
    torch = os.path.realpath(build.torch_root)
    return sorted({os.path.realpath(f) for f in files if not os.path.realpath(f).startswith(os.path.dirname(torch) + "/")})


def owners(files):
    """Debian's packages that own the files."""
    if shutil.which("dpkg-query") is None:
        return set()
    names = set()
    for path in files:
        # A file of /lib may be listed under /usr/lib, and the other way round.
        for form in (path, path.removeprefix("/usr"), "/usr" + path):
            done = subprocess.run(["dpkg-query", "-S", form], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                names.add(done.stdout.split(":")[0])
                break
    return names


def copy_licences(build, folder):
    """Writes folder/PACKAGE.txt for each."""
    os.makedirs(folder, exist_ok=True)
    absent = []
    for name in sorted((owners(linked_files(build)) | set(HEADERS)) - OF_THE_SYSTEM):
        text = f"/usr/share/doc/{name}/copyright"
        if os.path.exists(text):
            shutil.copyfile(text, os.path.join(folder, f"{name}.txt"))
        else:
            absent.append(name)
    if absent:
        say(f"no licence text was found for {', '.join(absent)}; add it before the package is passed on")

"""The folder for `docker build`: a Dockerfile and the sources that it compiles."""
import os
import shutil

from building import ROOT, say, version_of
from wheel_file import HERE

# Neither compiled nor packed, or made by builds and runs.
LEFT_OUT = {"build", "dist", "third_party", "runs", "tests", "__pycache__"}


def ignored(folder, names):
    """Entries of the checkout's top that are left out, and hidden ones everywhere."""
    top = os.path.samefile(folder, ROOT)
    return {n for n in names if n.startswith(".") or n == "__pycache__" or (top and n in LEFT_OUT)}


def make_docker_folder(output):
    """Returns the folder's path."""
    folder = os.path.join(output, f"sluice-{version_of()}-docker")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT, os.path.join(folder, "source"), ignore=ignored, symlinks=True)
    shutil.copy(os.path.join(HERE, "docker", "Dockerfile"), folder)
    say(f"{folder}: run docker build -t sluice {folder}")
    return folder

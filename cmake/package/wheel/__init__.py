"""Sluice: a program that trains transformer models larger than the memory at hand.

The package holds the program and starts it with the libtorch of the installed torch. `configs` is the folder of the
configurations that come with the program.
"""
import os as _os

from sluice._build import VERSION as __version__

configs = _os.path.join(_os.path.dirname(_os.path.abspath(__file__)), "configs")

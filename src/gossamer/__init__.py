"""Differentially private, fully decentralized learning."""

import os

# Must stand before torch is loaded: spinning OpenMP threads make small products many times slower on a busy machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"

"""The registry of noises: `privacy.noise.family`."""

from __future__ import annotations

from gossamer.mechanism.noise.base import NoiseKind
from gossamer.options.registry import Registry

families: Registry[NoiseKind] = Registry("privacy.noise.family")

# SPDX-License-Identifier: Apache-2.0
"""The rules of calibration as functions: a profile and settings to a policy. The program carries them out.

Settings are the options of `kvatlas calibrate METHOD --help-all`, with "_" for "-". Without model= they follow from the
profile alone; with it every candidate is tried on the model, which takes minutes."""

from __future__ import annotations

import os

from .policy import Policy
from .profile import Profile
from .program import Option, run


def calibrate(method: str, profile: Profile | str | os.PathLike, **options: Option) -> Policy:
    """`kvatlas calibrate METHOD -p PROFILE …`; "all" makes a document with a section for each method."""
    path = profile.path if isinstance(profile, Profile) else profile
    return Policy.parse(run("calibrate", method, "--json", profile=path, **options))


def simlayerkv(profile: Profile | str | os.PathLike, **options: Option) -> Policy:
    """Which layers are lazy: their attention on the initial and recent tokens exceeds threshold=."""
    return calibrate("simlayerkv", profile, **options)


def pod(profile: Profile | str | os.PathLike, **options: Option) -> Policy:
    """Blocks of layers that share keys, each at least delta= similar to every other."""
    return calibrate("pod", profile, **options)


def dynamickv(profile: Profile | str | os.PathLike, **options: Option) -> Policy:
    """How many tokens each layer keeps, budget= in the mean."""
    return calibrate("dynamickv", profile, **options)


def headkv(profile: Profile | str | os.PathLike, **options: Option) -> Policy:
    """How many tokens each KV head keeps, budget= in the mean."""
    return calibrate("headkv", profile, **options)


def lagkv(profile: Profile | str | os.PathLike, **options: Option) -> Policy:
    """How large LagKV's partitions are and which share of each is kept, of lags= and ratios=."""
    return calibrate("lagkv", profile, **options)


def precision(profile: Profile | str | os.PathLike, **options: Option) -> Policy:
    """Which number formats the keys and values of each layer are stored in."""
    return calibrate("precision", profile, **options)

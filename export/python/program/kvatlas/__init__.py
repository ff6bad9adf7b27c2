# SPDX-License-Identifier: Apache-2.0
"""kvatlas in Python: profiles as arrays, policies as dataclasses, and the rules of calibration as functions.

    import kvatlas

    with kvatlas.Profile("p.h5") as profile:
        divergence = profile.statistics["js/divergence"][...]     # [sample, head, layer, layer]
    policy = kvatlas.simlayerkv("p.h5", threshold=0.8, recent=256)
    policy.sections["simlayerkv"].result["lazy_layers"]           # [layer] of bool
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .answers import Answer, Picture, certify, check, evaluate
    from .capturing import capture
    from .errors import KvatlasError
    from .model import Model
    from .policy import Policy, Section
    from .profile import Array, Axis, Profile, Sample
    from .program import run
    from .rules import calibrate, dynamickv, headkv, lagkv, pod, precision, simlayerkv

__version__ = "0.1.0"
_PLACES = {
    "answers": ("Answer", "Picture", "certify", "check", "evaluate"),
    "errors": ("KvatlasError",),
    "model": ("Model",),
    "policy": ("Policy", "Section"),
    "profile": ("Array", "Axis", "Profile", "Sample"),
    "program": ("run",),
    "capturing": ("capture",),
    "rules": ("calibrate", "dynamickv", "headkv", "lagkv", "pod", "precision", "simlayerkv"),
}
__all__ = [name for names in _PLACES.values() for name in names]


def __getattr__(name: str):
    """Imports what is asked for: the command `kvatlas` starts without numpy and h5py."""
    for place, names in _PLACES.items():
        if name in names:
            return getattr(importlib.import_module(f".{place}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

"""What an Xid error of NVIDIA's driver means for the training on that device.

After NVIDIA's catalogue of Xid errors (docs.nvidia.com/deploy/xid-errors: immediate and investigatory action), and,
where it says no more than "contact support", after what gpud and DCGM's health checks do. critical: reset, drain or
replace the device. warning: the process is to be started again, or nobody has said. An Xid that stands in neither is
unused or new and deserves a look. Ignored is what the catalogue says to ignore and what only follows another error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

Gravity = Literal["ignored", "warning", "critical"]

CRITICAL: Final[Mapping[int, str]] = {
    46: "GPU timeout",
    48: "double-bit ECC error",
    54: "auxiliary power is not connected",
    61: "PMU breakpoint",
    62: "PMU halt",
    64: "row remapping failed",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    81: "VGA subsystem error",
    95: "uncontained ECC error",
    109: "context switch timeout",
    110: "security fault",
    119: "GSP RPC timeout",
    120: "GSP error",
    136: "link training failed",
    140: "unrecovered ECC error",
    143: "GPU initialization error",
    **dict.fromkeys(range(144, 151), "NVLink5 error"),
    155: "NVLink software error",
    156: "resource retirement",
    158: "fatal timeout",
    167: "PCIe fatal timeout",
    168: "reduced memory",
    169: "SEC2 halt",
    171: "uncorrectable DRAM error",
    172: "uncorrectable SRAM error",
}
WARNING: Final[Mapping[int, str]] = {
    8: "channel idle timeout",
    13: "graphics engine exception",
    31: "MMU fault",
    32: "bad push buffer",
    43: "GPU stopped processing",
    63: "row remapping recorded, pending a reset",
    68: "NVDEC error",
    69: "class error",
    80: "corrupted data sent to the GPU",
    92: "high single-bit ECC error rate",
    94: "contained ECC error",
    121: "C2C error corrected",
    154: "recovery action changed: the kernel log says to which",
}
IGNORED: Final = frozenset({37, 38, 44, 45, 66, 67, 93, 106, 107, 137, 141, 151, 152, 153, 157, 159, 160, 161})


def gravity(xid: int) -> Gravity:
    """How much an Xid matters."""
    if xid in CRITICAL:
        return "critical"
    return "ignored" if xid in IGNORED else "warning"


def meaning(xid: int) -> str:
    """What it is, in words."""
    return CRITICAL.get(xid) or WARNING.get(xid) or "see NVIDIA's catalogue"

"""Which GPU a trainer's `cuda:0` is, where torch itself can say.

Rules: torch is found, never imported, and asked only once it uses CUDA by itself; what it cannot say is left
out. Must not know drivers or environments.
"""

import sys
from collections.abc import Iterable
from types import ModuleType


def torch_lanes(devices: Iterable[str]) -> dict[str, str]:
    """The trainer's words by the UUID of their device, as `RunStarted.lanes` holds them."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    found = {_uuid(torch, device): device for device in devices if device.startswith("cuda")}
    return {uuid: device for uuid, device in found.items() if uuid is not None}


def _uuid(torch: ModuleType, device: str) -> str | None:
    """The UUID of one device; older releases of torch have none."""
    try:
        if not torch.cuda.is_initialized():
            return None
        uuid = str(torch.cuda.get_device_properties(torch.device(device)).uuid)
        # HIP's is sixteen letters, of which torch writes the codes.
        return f"GPU-{bytes.fromhex(uuid.replace('-', '')).decode('ascii')}" if _is_hip(torch) else uuid
    except (AttributeError, AssertionError, RuntimeError, ValueError):
        return None


def _is_hip(torch: ModuleType) -> bool:
    return getattr(getattr(torch, "version", None), "hip", None) is not None

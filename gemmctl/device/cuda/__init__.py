"""A Hopper GPU through the CUDA driver: the only folder whose modules import cuda.

Everything the driver can say turns into a sentence here: what keeps a GPU from being used into
DeviceUnusable, what goes wrong while it runs into DeviceFailed.
"""

from gemmctl.device.cuda.calls import device_count
from gemmctl.device.cuda.device import CudaDevice

__all__ = ["CudaDevice", "device_count"]

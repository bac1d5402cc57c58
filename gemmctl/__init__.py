"""gemmctl: grouped GEMM on NVIDIA Hopper GPUs from the command line."""

__version__ = "0.1.0"

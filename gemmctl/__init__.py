"""gemmctl: grouped GEMM on NVIDIA Hopper GPUs from the command line."""

__version__ = "0.2.0.dev0"

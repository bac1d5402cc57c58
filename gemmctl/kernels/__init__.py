"""What Python and the kernels have in common."""

"""The precompiled kernels: what the cubins hold."""

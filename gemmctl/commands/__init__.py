"""The commands: options in, one call per step, exit code out."""

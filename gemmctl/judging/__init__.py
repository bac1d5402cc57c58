"""Whether what a device wrote is right."""

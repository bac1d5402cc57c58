"""How a problem runs, decided without a device."""

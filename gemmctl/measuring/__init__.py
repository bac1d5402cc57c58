"""How long a plan takes, and which plan takes least."""

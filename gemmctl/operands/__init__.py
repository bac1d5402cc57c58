"""Element types, and operands made from a seed."""

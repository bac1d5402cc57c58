"""Problem lists: text to values that remember their place."""

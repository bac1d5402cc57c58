"""What users and programs see of the results."""

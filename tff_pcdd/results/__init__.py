"""What runs and comparisons have left in their directories, read back with limits."""

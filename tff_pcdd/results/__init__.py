"""Results: reads back what runs and comparisons have left, and says which of them count."""

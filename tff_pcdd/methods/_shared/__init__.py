"""What several methods have in common; no method itself."""

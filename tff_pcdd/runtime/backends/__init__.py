"""The built-in runtimes: a name and settings each, cheap to import."""

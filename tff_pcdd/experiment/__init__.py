"""Experiments in memory: settings, simulation, accuracies and history; no file is written here."""

"""Models in files, without pickle."""

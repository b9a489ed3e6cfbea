"""One file per evaluation."""

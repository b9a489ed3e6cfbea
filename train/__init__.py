"""Feature file to checkpoints and scores. Never opens a video."""

"""From a loaded model to one that serves: restore, capture, check; then work between steps."""

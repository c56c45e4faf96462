"""Where steps are computed. `base` is what the rest of the engine knows of a backend."""

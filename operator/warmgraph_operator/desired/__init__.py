"""What should exist for one InferenceDeployment: pure functions from values to objects."""

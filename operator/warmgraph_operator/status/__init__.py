"""What is said of one InferenceDeployment: pure functions from facts to status and events."""

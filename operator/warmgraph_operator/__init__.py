"""The control plane: one InferenceDeployment becomes Kubernetes objects and a status."""

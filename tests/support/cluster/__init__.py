"""A small Kubernetes for tests: an API server that validates with Kubernetes' own schema, controllers, and one machine."""

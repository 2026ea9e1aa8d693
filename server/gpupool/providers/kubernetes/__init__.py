"""Nodes from Kubernetes: a pod is one node agent."""

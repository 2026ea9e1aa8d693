"""Providers of nodes: engines that lend whole devices to the pool."""

"""A pool of GPUs: server, node agent, client library and command line.

Importing this package imports nothing else; each part is imported by its own name
(``gpupool.client.pool``, ``gpupool.node.agent``, …) and pays for its own dependencies.
"""

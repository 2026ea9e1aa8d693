"""Engines start workers on nodes and tell when they die; see :mod:`gpupool.engines.local`."""

"""Measurements of this machine: what remoting costs beside what the wire costs."""

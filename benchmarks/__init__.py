"""What `gpupool bench` measures, from a checkout: the wire, parking, fairness, the software GPU, placement."""

"""``gpupool bench notebook``: what the notebook's side costs, measured in a real browser on a real stack."""

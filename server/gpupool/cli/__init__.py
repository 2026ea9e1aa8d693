"""The command line ``gpupool``; :mod:`gpupool.cli.main` is its entry point."""

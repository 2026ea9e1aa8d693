"""The gRPC services of the pool server."""

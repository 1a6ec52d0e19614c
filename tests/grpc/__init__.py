"""gRPC: converters, server and client in both versions."""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # grpcio tells of every connection that breaks on stderr

"""What an operator sees: health, the log, traces, metrics, and the end of a server. Real processes and sockets."""

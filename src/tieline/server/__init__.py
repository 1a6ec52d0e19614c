"""HTTP to operations: the ASGI app, and the process that serves it."""

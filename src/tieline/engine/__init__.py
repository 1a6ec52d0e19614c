"""The server's brain: agents, turns, runs and the operations of the protocol. Knows no transport."""

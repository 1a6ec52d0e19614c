"""What an operator sees of a server: its log, its traces, its metrics. Nothing here is loaded where it is off."""

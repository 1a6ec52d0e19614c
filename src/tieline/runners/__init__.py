"""What others run as agents of ours."""

"""What all suites share: tests say which requirements they show."""

pytest_plugins = ["tests.requirement_marks"]

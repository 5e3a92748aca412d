"""The guard for those who own no loop."""

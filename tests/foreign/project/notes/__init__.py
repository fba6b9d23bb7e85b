"""The foreign project's one app: it keeps notes."""

"""WeChat Pay API v3."""

"""WeChat Pay v3 as the platform speaks it: the API, its signatures and its bills."""

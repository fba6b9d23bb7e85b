"""Alipay as the platform speaks it: the gateway, its signatures, codes and bills."""

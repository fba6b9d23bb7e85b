"""Alipay with RSA2, by public key or by certificates."""

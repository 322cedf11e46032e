"""Prefix reuse: two prompts compared, reuse that is wrong measured, and a cache for many prompts."""

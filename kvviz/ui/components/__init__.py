"""The two screen components most pages are made of: the token strip and the cache grid."""

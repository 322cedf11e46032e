"""The Attention page in parts: the text, the measuring run, and one module for each question."""

"""Embedders, one per file. `mq9.registry.embedder` picks one; nobody else imports from here."""

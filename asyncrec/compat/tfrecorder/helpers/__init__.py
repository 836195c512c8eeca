"""TFRecorder's ``helpers``: ``marshaller``, ``decorator`` and ``checker``."""

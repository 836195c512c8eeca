"""Finish, in another process, the work of dead writers."""

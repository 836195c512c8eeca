"""What a dead writer left is finished by another process."""

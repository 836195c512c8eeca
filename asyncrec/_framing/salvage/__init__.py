"""Salvage: find the intact records in a damaged stream, and list the ranges that were lost."""

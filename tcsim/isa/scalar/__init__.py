"""Ordinary PTX: instructions in which every thread computes on registers of its own."""

"""Networks that no library offers, written from their published descriptions."""

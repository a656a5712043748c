"""Networks that hosts are, and what grows on them."""

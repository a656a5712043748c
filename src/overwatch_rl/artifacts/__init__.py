"""Files in a folder or an object store, their versions and signatures. Never imports torch."""

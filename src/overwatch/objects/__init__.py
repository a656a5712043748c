"""Files in a folder or an object store. Must not know what the files mean."""

"""One panel, one file: `render` turns a part of a snapshot into lines of an exact width."""

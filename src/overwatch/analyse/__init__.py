"""What is made of runs that were recorded: compared, reported, searched, judged by a script, exported.

Owns what is made of whole recordings; a recording is read into a `Story`, and everything
else here takes stories. Nothing here writes to a screen or knows a command line.
"""

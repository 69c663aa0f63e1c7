"""What pages, commands and logs say that depends on the moment at which they are read."""

NUMBER = r"\d+(?:\.\d)?"
DURATION = rf"{NUMBER} (?:ms|s|min|h|d)"  # for people, as of an age
IN_LOG = rf"{NUMBER}m?s"  # in a line of a worker

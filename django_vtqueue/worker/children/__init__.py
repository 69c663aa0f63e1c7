"""Child processes of a worker (``--processes``): they run jobs; their parent claims, renews and settles."""

"""Captured graphs kept for the next process: a content-addressed folder per cache key.

    ROOT/DIGEST/key.json       every field of the key, readable
    ROOT/DIGEST/images/…       one document per bucket, named by its content
    ROOT/DIGEST/binaries/…     kernel binaries, named by their SHA-256
    ROOT/DIGEST/plan.json      what traffic used, what capturing cost: advice, not truth
    ROOT/DIGEST/users/…        which revisions use it: what retention goes by
    ROOT/DIGEST/manifest.json  written last: the entry exists from here on; checksums of the rest,
                               and each graph's known answer

Files are never changed in place: an entry appears by a rename, and grows by new files and a new
manifest, renamed over the old one. So a process that is killed at any moment leaves an entry that
loads, or none. Writers hold a lock on ROOT/.lock; users of an entry a shared one on its key.json,
which keeps it from being pruned. No torch in here.
"""

"""What a bundle holds, and where it comes from: a folder, a git repository at a ref, an archive. Nothing here runs its code."""

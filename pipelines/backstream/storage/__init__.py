"""Read and write files wherever they are: on a disk, or in an object store."""

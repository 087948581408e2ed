"""Our Gluon kernels; importing a module of them needs Triton, importing `cases` does not."""

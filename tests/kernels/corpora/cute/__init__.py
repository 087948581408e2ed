"""Our CuTe DSL kernels; importing a module of them needs nvidia-cutlass-dsl, importing `cases` does not."""

"""The instructions: a module or a package for each family, named as PTX names it."""

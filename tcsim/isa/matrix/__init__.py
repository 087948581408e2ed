"""ldmatrix, stmatrix and movmatrix."""

"""ldmatrix, stmatrix, movmatrix."""

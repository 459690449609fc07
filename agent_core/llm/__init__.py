"""Model providers behind one request and response."""

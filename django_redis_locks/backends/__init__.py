"""One store per file or folder. A backend carries commands out and knows nothing of locks."""

"""What a stranger does: build, install, and follow the pages, in fresh environments."""

"""Videos and annotations to the feature file, in parallel stages."""

"""Large values by digest: stored once, in the backend or on any file system, collected when nobody refers to them."""

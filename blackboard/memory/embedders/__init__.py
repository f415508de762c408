"""The embedders that come with the library; any object with the members of `Embedder` serves as well."""

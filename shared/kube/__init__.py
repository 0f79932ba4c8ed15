"""The only importer of kubernetes_asyncio: list, watch and patch, in our models and errors."""

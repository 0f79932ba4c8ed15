"""What a release is made of, and whether anything in it is known to be vulnerable.

Enters: `uv.lock`, the Dockerfile and the manifests. Inside: `locked` reads what is installed, `images` asks
registries for digests, `sbom` lists both as CycloneDX, `audit` asks OSV about the packages. Leaves: a folder
with the list, the digests, their checksums and a signature (`make release`), or findings (`make audit`).
"""

// Package hfcache reads and fills the cache of Hugging Face's hub, in the layout of
// the Python library huggingface_hub, so that both use the same files.
//
// A cache has a folder for each repository: models--owner--name. There a blob,
// blobs/<ETag>, has the bytes of a file; for large files (LFS) its name is their
// SHA-256. snapshots/<commit>/<path> is a relative link to a blob, or a real file
// where links are impossible. refs/<revision> has the commit that a branch or tag,
// such as refs/pr/1, meant when it was last asked for. .no_exist/<commit>/<path>
// notes that the commit has no such file.
//
// A blob is written beside its place and renamed, so that readers need no lock. The
// lock, .locks/<repository>/<ETag>.lock, only saves a second download; it is never
// removed. Nothing is written through a link.
//
// Reading changes nothing, and works in a folder that cannot be written.
package hfcache

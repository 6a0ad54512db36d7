// Package pyenv creates and caches Python environments for reward models: locked with hashes,
// addressed by their content, shared by any number of processes.
//
// The life of an environment:
//
//  1. A [Spec] says which Python, which packages and whether the Python's own are seen.
//     [Store.Find] says whether its environment is made. It reads files and asks nobody.
//  2. [Store.Make] finds the Python, has pip resolve the requirements in an empty scratch
//     environment without fetching any wheel, and makes a lock of the answer: a version and a
//     SHA-256 for each package. pip resolves also where uv installs, so that the lock, and with
//     it the environment's name, is the same on both kinds of machine.
//  3. Options.Agree sees the [Plan]: each package with version, size and licence as the index
//     says them. Unknown is said as unknown, and no package is fetched before.
//  4. The environment's name is a digest of the lock, the Python's version, whether the
//     Python's own packages are seen, and the platform. The maker locks the name; a second
//     one waits and finds the environment made.
//  5. uv installs where it is on PATH, else pip, and hashes are required. It happens in the
//     final folder: an environment has its path in the first lines of its programs and cannot be
//     renamed. The folder counts as made only with the file environment.json, which is written
//     last, after the interpreter has started.
//  6. A maker that is killed leaves a folder without that file. Its children hold the lock
//     until they have ended too; then the next maker clears the folder.
//
// Where there is no network, [Store.Unpack] makes the environment of a Spec out of the wheels that
// [Store.Pack] has downloaded elsewhere, on the same platform. It asks no index, and a configuration
// finds the environment as one that was made here.
//
// A lock is a flock on a file that the children inherit; the kernel lets go of it.
package pyenv

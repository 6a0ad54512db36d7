// Package pyenv creates and caches Python environments for reward models. An environment is locked
// with hashes, its name is derived from its contents, and any number of processes can share it.
//
// The life of an environment:
//
//  1. A [Spec] selects the Python, the packages, and whether the Python's own packages are visible.
//     [Store.Find] returns its environment if it exists. Find reads files only.
//  2. [Store.Make] finds the Python, lets pip resolve the requirements in an empty scratch
//     environment without downloading a wheel, and makes a lock from the result: a version and a
//     SHA-256 for each package. pip also resolves if uv installs, so that the lock, and with it the
//     environment's name, is the same on machines with and without uv.
//  3. Options.Agree gets the [Plan]: each package with the version, size and licence from the index.
//     Unknown values are marked as unknown, and no package is downloaded before.
//  4. The environment's name is a digest of the lock, the Python's version, the visibility of the
//     Python's own packages, and the platform. The maker locks the name; a second maker waits and
//     then finds the environment.
//  5. uv installs if it is on PATH, otherwise pip, and hashes are required. The installation is in
//     the final folder, because the programs of an environment contain its path and it cannot be
//     renamed. The folder counts as an environment only with the file environment.json, which is
//     written last, after the interpreter has started.
//  6. A maker that is killed leaves a folder without that file. Its children hold the lock until they
//     have ended too; then the next maker deletes the folder.
//
// Without a network, [Store.Unpack] makes the environment of a Spec from the wheels that
// [Store.Pack] has downloaded elsewhere, on the same platform. Unpack uses no index, and a
// configuration finds the environment like one that was made on this machine.
//
// A lock is a flock on a file that the children inherit; the kernel releases it when all of them
// have ended.
package pyenv

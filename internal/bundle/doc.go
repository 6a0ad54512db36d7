// Package bundle packs files into parts of limited size, and joins and checks the parts on a
// machine where nothing is installed.
//
// A bundle is a folder: bundle.json (the manifest) and parts NAME.000, NAME.001 and so on. The
// contents of the files stand one behind the other in one zstd stream with a window of 128 MiB,
// which is cut into the parts. The manifest has the size and the SHA-256 of every file and of
// every part; the bundle's id is the SHA-256 of its list of files, and begins every part, so that
// a part of another bundle is told from one that is damaged.
//
// [Join] looks at everything before it writes anything, writes no byte more than the manifest
// declares, and only below the folder that it makes. What it refuses, it names: [ErrManifest],
// [ErrMissing], [ErrDamaged], [ErrForeign], [ErrPath], [ErrLink], [ErrBomb].
//
// [Manifest.Each] hands the files out one by one, to whoever has another place for each.
//
// The package needs no cgo and nothing of the rest of the project: tools/bundle is a static
// program of 3 MB that travels with a bundle and unpacks it. `rewardloop models bundle` and
// unbundle are the other users.
package bundle

// Package bundle packs files into parts of limited size, and checks and unpacks the parts on a
// machine where nothing is installed.
//
// A bundle is a folder with bundle.json (the manifest) and the parts NAME.000, NAME.001 and so on.
// The contents of the files follow one another in one zstd stream with a window of 128 MiB, which
// is split into the parts. The manifest contains the size and the SHA-256 of every file and of
// every part. The bundle's id is the SHA-256 of its list of files. Every part begins with the id,
// so that a part of another bundle can be distinguished from a damaged part.
//
// [Join] checks everything before it writes anything, writes no more bytes than the manifest
// declares, and writes only below the folder that it makes. Its errors are [ErrManifest],
// [ErrMissing], [ErrDamaged], [ErrForeign], [ErrPath], [ErrLink] and [ErrBomb].
//
// [Manifest.Each] passes the files to a function one by one, for callers that store each file
// elsewhere.
//
// The package needs neither cgo nor the rest of the project: tools/bundle is a static program of
// 3 MB that is copied with a bundle and unpacks it. `rewardloop models bundle` and unbundle also
// use the package.
package bundle

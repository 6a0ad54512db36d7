// Package standard registers every scorer of this project.
//
// The life of it is one call at start: Register fills a registry with the scorers of the
// packages rewards/*, each wired to what it needs from the process (Deps); the
// configuration then picks some of them by name (builtin://<name>, and python by a path
// in Python). It holds nothing and starts nothing: what is in Deps stays its owner's.
//
// A new scorer is added to Register and nowhere else.
package standard

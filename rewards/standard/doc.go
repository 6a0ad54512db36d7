// Package standard names every scorer that ships.
//
// The life of it is one call at start: Register fills a registry with the scorers
// below, each wired to what it needs from the process; the configuration then
// picks some of them by name (builtin://<name>, and python by a path in Python). It holds nothing and starts
// nothing: what is in Deps stays its owner's.
//
//	ocr                      rewards/ocr    needs Deps.Reader
//	jpeg_compressibility     rewards/jpeg
//	jpeg_incompressibility   rewards/jpeg
//	python                   rewards/python a function of the user's, by its path
//
// A new scorer is added here and nowhere else.
package standard

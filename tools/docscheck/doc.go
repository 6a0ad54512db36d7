// Docscheck holds the documents to the tree that they describe.
//
// It asks git for the Markdown files of the repository and reads each one once, into
// headings, links, code spans and fenced blocks (page.go). Then it looks at what the
// tree has: files, Go tests, make targets, and what the built binary says of itself,
// its commands with their flags, its rewards, models and configuration keys (tree.go).
// The checks compare the two:
//
//	links.go     relative links and pictures lead somewhere, with their anchors
//	external.go  addresses elsewhere are well written, and with -online answer
//	spans.go     names in backticks: files, tests, targets, flags, keys, rewards
//	commands.go  commands of sh blocks and of backticks (shell.go takes them apart)
//	blocks.go    json, go, python and sh parse
//	settings.go  yaml blocks and overrides are configurations that the binary takes
//
// What cannot be checked stands in reasons.go with the reason, and an entry that is no
// longer needed is a finding itself. runs.go names the tests that run whole blocks, and
// is held to the tests and blocks that there are.
//
// It prints one line for each finding, `file:line: what is wrong and what to do`, then
// what it has checked, and exits with 1 if it found anything:
//
//	scripts/tool.sh docscheck -bin bin/rewardloop [-online] [-root .]
//
// Without -online it asks no network. It changes nothing; what it writes lies in a
// temporary folder.
package main

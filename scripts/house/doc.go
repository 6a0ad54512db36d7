// House measures the Go of a tree: how much there is, how long its functions and files
// are, how much of it is tests, and how much of it stands there twice.
//
// It reads the files below each folder it is given, parses them, and prints one Markdown
// table with a column for each folder, so that before and after stand side by side:
//
//	git worktree add /tmp/before v1 && go run ./scripts/house before=/tmp/before after=.
//
// It builds nothing and changes nothing. Folders named testdata, and those that begin
// with a dot or an underscore, are not read; packages below internal/testkit count as
// tests, for nothing else uses them.
package main

package main

import (
	"hash/maphash"
	"strings"
)

// window is the number of lines that make a repetition: shorter runs are idiom.
const window = 6

// runs finds the lines that stand in several places. Blank lines, comments, imports and
// lone punctuation do not count, and white space is folded.
type runs struct {
	seed  maphash.Seed
	files [][]uint64     // a number for each line that counts
	seen  map[uint64]int // how often a window of them stands there
}

func newRuns() *runs { return &runs{seed: maphash.MakeSeed(), seen: map[uint64]int{}} }

// add reads a file. It returns how many of its lines are nothing but a comment.
func (r *runs) add(source []byte) (comments int) {
	var (
		lines            []uint64
		importing, block bool
	)
	for line := range strings.Lines(string(source)) {
		line = strings.Join(strings.Fields(line), " ")
		switch {
		case block || strings.HasPrefix(line, "/*"):
			comments++
			block = !strings.Contains(line, "*/")
		case strings.HasPrefix(line, "//"):
			comments++
		case importing || strings.HasPrefix(line, "import "):
			importing = line != ")" && (importing || line == "import (")
		case strings.ContainsFunc(line, isWord):
			lines = append(lines, maphash.String(r.seed, line))
		}
	}
	r.files = append(r.files, lines)
	for i := range windows(lines) {
		r.seen[r.sum(lines[i:i+window])]++
	}
	return comments
}

// repeated is the number of lines that lie in a window that stands elsewhere too.
func (r *runs) repeated() int {
	n := 0
	for _, lines := range r.files {
		end := 0 // of the repeated lines so far
		for i := range windows(lines) {
			if r.seen[r.sum(lines[i:i+window])] > 1 {
				n += i + window - max(i, end)
				end = i + window
			}
		}
	}
	return n
}

func windows(lines []uint64) int { return max(0, len(lines)-window+1) }

func (r *runs) sum(lines []uint64) uint64 {
	var h maphash.Hash
	h.SetSeed(r.seed)
	for _, line := range lines {
		maphash.WriteComparable(&h, line)
	}
	return h.Sum64()
}

func isWord(c rune) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

package engines

import (
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/rewardloop/rewardloop/internal/subprocess"
)

// logBytes is how long a log becomes before it is put aside as <name>.1.log, in place of the one that was there.
const logBytes = 16 << 20

// output is where a server's standard output and error go: a file of bounded length, the one before it, and the last words in
// memory. A disk that is full costs the file and not the server.
type output struct {
	path  string
	limit int64
	words *subprocess.Output

	mu      sync.Mutex
	file    *os.File // guarded by mu; nil: it cannot be written
	written int64    // guarded by mu
}

func openOutput(folder, name string, limit int64) *output {
	o := &output{path: filepath.Join(folder, name+".log"), limit: limit, words: &subprocess.Output{}}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open()
	return o
}

// open continues the file. The caller holds mu.
func (o *output) open() {
	o.written = 0
	file, err := os.OpenFile(o.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	if info, err := file.Stat(); err == nil {
		o.written = info.Size()
	}
	o.file = file
}

// Write never fails: what cannot be written is lost to the file.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, _ = o.words.Write(p)
	if o.written+int64(len(p)) > o.limit && o.written > 0 {
		if o.file != nil {
			_ = o.file.Close()
			o.file = nil
		}
		_ = os.Rename(o.path, o.path[:len(o.path)-len(".log")]+".1.log")
		o.open()
	}
	if o.file != nil {
		n, _ := o.file.Write(p)
		o.written += int64(n)
	}
	return len(p), nil
}

// fresh begins new last words, those of the next process.
func (o *output) fresh() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.words = &subprocess.Output{}
}

// lastWords are what the process said last.
func (o *output) lastWords() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.words.LastWords()
}

// lastLine is what the process said last, cut to a line of a log.
func (o *output) lastLine() string {
	words := strings.TrimSpace(o.lastWords())
	line := words[strings.LastIndexByte(words, '\n')+1:]
	return line[:min(len(line), 200)]
}

func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.file != nil {
		_ = o.file.Close()
		o.file = nil
	}
}

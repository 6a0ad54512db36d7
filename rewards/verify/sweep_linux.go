package verify

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// marker is the variable by which what a program started is known, wherever it went: a
// process inherits the environment, also into a session of its own.
const marker = "REWARDLOOP_VERIFY"

// sweep kills every process that carries the mark, until there is none, and says if
// some cannot be killed. It reads the environment of every process of the machine,
// about 5 µs each (0.5 ms among 108).
func sweep(mark string) error {
	pause := 100 * time.Microsecond
	for until := time.Now().Add(killWait); ; {
		killed := killMarked(mark)
		if len(killed) == 0 {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("it started processes that cannot be killed: %v", killed[:min(len(killed), 10)])
		}
		time.Sleep(pause)
		pause = min(2*pause, 20*time.Millisecond)
	}
}

// killMarked kills those that carry the mark now.
func killMarked(mark string) (killed []int) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		if carries(pid, mark) && kill(pid, mark) {
			killed = append(killed, pid)
		}
	}
	return killed
}

// carries looks for the mark in a process's environment. That of a zombie is empty,
// that of another user cannot be read.
func carries(pid int, mark string) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		if string(entry) == mark {
			return true
		}
	}
	return false
}

// kill kills a process and reports whether it was there. The handle is taken before
// the mark is looked for again, so that nobody is killed who got its number since.
func kill(pid int, mark string) bool {
	handle, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer func() { _ = handle.Release() }()
	return carries(pid, mark) && handle.Kill() == nil
}

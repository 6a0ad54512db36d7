package verify

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// marker is the variable by which what a program started is known, wherever it went: a
// process inherits the environment, also into a session of its own.
const marker = "REWARDLOOP_VERIFY"

// sweep kills every process that is of the session or carries the mark, until each is dead,
// and says if some cannot be killed. It reads the state and the environment of every process
// of the machine, about 10 µs each (1 ms among 108).
func sweep(session int, mark string) error {
	pause := 100 * time.Microsecond
	dying := map[int]string{} // when those that were killed began
	for until := time.Now().Add(killWait); ; {
		left := killAll(session, mark, dying)
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("the program started processes that cannot be killed: %v", left[:min(len(left), 10)])
		}
		time.Sleep(pause)
		pause = min(2*pause, 20*time.Millisecond)
	}
}

// killAll kills those that are of the session or carry the mark now, and returns them with
// those that it has killed before and that still die: one of these has lost its environment
// a moment before it is dead.
func killAll(session int, mark string, dying map[int]string) (left []int) {
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
		now, lives := living(pid)
		if !lives {
			continue
		}
		if dying[pid] == now.began || (now.session == session || carries(pid, mark)) && kill(pid, now.began) {
			dying[pid] = now.began
			left = append(left, pid)
		}
	}
	return left
}

// state is what Linux says of a process.
type state struct {
	session int
	began   string // in ticks since the machine began; with its number it names a process for good
}

// living reports on a process that lives: one that exists and is no zombie. An orphan may
// stay one where nobody reaps it.
func living(pid int) (state, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return state{}, false
	}
	// Behind the name, which may hold anything: state, parent, group, session, …; the 20th is when it began.
	after := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(after) < 20 || after[0] == "Z" || after[0] == "X" {
		return state{}, false
	}
	session, err := strconv.Atoi(after[3])
	return state{session, after[19]}, err == nil
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

// kill kills a process and reports whether it was there. The handle is taken before it is
// looked at again, so that nobody is killed who got its number since.
func kill(pid int, began string) bool {
	handle, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer func() { _ = handle.Release() }()
	now, lives := living(pid)
	return lives && now.began == began && handle.Kill() == nil
}

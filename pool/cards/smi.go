package cards

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// errNoProgram says that nvidia-smi is not there.
var errNoProgram = errors.New("nvidia-smi is not on PATH")

// smi asks nvidia-smi.
type smi struct {
	Options
	end time.Time // of all calls
}

// queried are the columns of the first call, in order.
const queried = "index,uuid,name,memory.total,memory.free,ecc.errors.uncorrected.volatile.total,mig.mode.current"

// cards are those of the machine. Without a driver there are none, and a note says so.
func (s smi) cards(ctx context.Context) (all []gpu, notes []string, err error) {
	out, err := s.run(ctx, "--query-gpu="+queried, "--format=csv,noheader,nounits")
	if err != nil {
		return nil, nil, err
	}
	if why := out.none(); why != "" {
		return nil, []string{why}, nil
	}
	for line := range out.lines() {
		if why := lostCard(line); why != "" {
			notes = append(notes, why)
			continue
		}
		g, why := parseCard(line)
		if why != "" {
			return nil, nil, fmt.Errorf("%s lists cards in a way that is not understood: %s in %q%s", s.Program, why, short(line), out.ended())
		}
		all = append(all, g)
	}
	if err := out.broken(len(notes) > 0); err != nil {
		return nil, nil, err
	}
	if len(all) == 0 && len(notes) == 0 {
		return nil, nil, fmt.Errorf("%s printed nothing: run the command by hand; the driver may need to be reloaded", s.Program)
	}
	for _, g := range all {
		if g.mig {
			if err := s.instances(ctx, all); err != nil {
				return nil, nil, err
			}
			break
		}
	}
	if err := s.processes(ctx, all); err != nil {
		notes = append(notes, "what runs on the cards is not known: "+err.Error())
	}
	return all, notes, nil
}

// parseCard reads a line of the first call; why says what is wrong with it.
func parseCard(line string) (g gpu, why string) {
	f := strings.Split(line, ",")
	if len(f) != strings.Count(queried, ",")+1 {
		return g, fmt.Sprintf("%d columns instead of %d", len(f), strings.Count(queried, ",")+1)
	}
	for i := range f {
		f[i] = strings.TrimSpace(f[i])
	}
	n, err := strconv.Atoi(f[0])
	if err != nil || n < 0 {
		return g, "no number of a card"
	}
	g.Card = Card{Index: n, UUID: f[1], Name: f[2], FreeBytes: -1, ECCErrors: -1}
	for _, x := range f[1:] { // a card that has fallen off its bus, or waits for a reset
		if strings.HasPrefix(x, "[") && !unknown(x) {
			g.Sick = "nvidia-smi reports " + x + ": reset the card (nvidia-smi --gpu-reset) or restart the machine"
		}
	}
	if !strings.HasPrefix(g.UUID, "GPU-") {
		if g.UUID = ""; g.Sick == "" {
			return g, "no uuid"
		}
	}
	if strings.HasPrefix(g.Name, "[") {
		g.Name = ""
	}
	for _, x := range []struct {
		text string
		unit int64
		to   *int64
	}{{f[3], 1 << 20, &g.MemoryBytes}, {f[4], 1 << 20, &g.FreeBytes}, {f[5], 1, &g.ECCErrors}} {
		v, err := strconv.ParseInt(x.text, 10, 32)
		switch {
		case err == nil && v >= 0:
			*x.to = v * x.unit
		case !strings.HasPrefix(x.text, "["):
			return g, fmt.Sprintf("%q is not a number", short(x.text))
		}
	}
	g.count(g.ECCErrors)
	g.mig = f[6] == "Enabled"
	return g, ""
}

// unknown reports whether a value is one that a card does not have.
func unknown(x string) bool {
	switch x {
	case "[N/A]", "[Not Supported]", "[Insufficient Permissions]":
		return true
	}
	return false
}

// lostCard is what nvidia-smi writes instead of the line of a card that does not answer.
func lostCard(line string) string {
	if strings.HasPrefix(line, "Unable to determine the device handle") {
		return "nvidia-smi: " + short(line)
	}
	return ""
}

var (
	cardLine     = regexp.MustCompile(`^GPU +(\d+): (.*) \(UUID: (GPU-[^)]+)\)$`)
	instanceLine = regexp.MustCompile(`^\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)$`)
	profileSize  = regexp.MustCompile(`\.(\d+)gb`)
)

// instances adds those that MIG makes of cards.
func (s smi) instances(ctx context.Context, all []gpu) error {
	out, err := s.run(ctx, "-L")
	if err != nil {
		return err
	}
	var of *gpu
	for line := range out.lines() {
		if m := cardLine.FindStringSubmatch(line); m != nil {
			of = nil
			for i := range all {
				if all[i].UUID == m[3] {
					of = &all[i]
				}
			}
			continue
		}
		m := instanceLine.FindStringSubmatch(line)
		switch {
		case lostCard(line) != "":
		case m == nil || of == nil:
			return fmt.Errorf("%s -L lists instances in a way that is not understood: %q%s", s.Program, short(line), out.ended())
		case of.mig:
			c := Card{Index: of.Index, UUID: m[2], Name: of.Name + " MIG " + m[1], Parent: of.UUID, FreeBytes: -1, ECCErrors: of.ECCErrors}
			// The profile names its memory: 10gb are 9,984 MiB on an H100, 5gb 4,864 MiB on an
			// A100, so 10^9 bytes each is a little less than there is.
			if gb := profileSize.FindStringSubmatch(m[1]); gb != nil {
				n, _ := strconv.ParseInt(gb[1], 10, 32) // digits
				c.MemoryBytes = n * 1e9
			}
			of.instances = append(of.instances, c)
		}
	}
	return out.broken(false)
}

// processes adds those that compute on cards.
func (s smi) processes(ctx context.Context, all []gpu) error {
	out, err := s.run(ctx, "--query-compute-apps=gpu_uuid,pid,used_memory,process_name", "--format=csv,noheader,nounits")
	if err != nil {
		return err
	}
	for line := range out.lines() {
		f := strings.SplitN(line, ",", 4) // a name may have commas
		if len(f) < 4 {
			if strings.Contains(line, "No running") || lostCard(line) != "" {
				continue
			}
			return fmt.Errorf("%q is not understood%s", short(line), out.ended())
		}
		pid, err := strconv.Atoi(strings.TrimSpace(f[1]))
		if err != nil {
			continue // [N/A]: a process that this one may not see
		}
		p := Process{PID: pid, Name: strings.TrimSpace(f[3]), Bytes: -1}
		if n, err := strconv.ParseInt(strings.TrimSpace(f[2]), 10, 32); err == nil && n >= 0 {
			p.Bytes = n << 20
		}
		for i := range all {
			g := &all[i]
			if g.UUID != strings.TrimSpace(f[0]) {
				continue
			}
			g.Processes = append(g.Processes, p)
			for k := range g.instances {
				g.instances[k].Processes = append(g.instances[k].Processes, p)
			}
		}
	}
	return out.broken(false)
}

// answer is what a call of the program said.
type answer struct {
	program, text string
	exit          error // how it ended, if not with 0
}

// lines are those that are not empty.
func (a answer) lines() func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for line := range strings.Lines(a.text) {
			if line = strings.TrimRight(line, " \r\n"); line != "" && !yield(line) {
				return
			}
		}
	}
}

// none says why there are no cards, where the program says that.
func (a answer) none() string {
	for line := range a.lines() {
		for _, says := range []string{"No devices were found", "couldn't communicate with the NVIDIA driver", "Failed to initialize NVML"} {
			if strings.Contains(line, says) {
				return "nvidia-smi: " + short(line)
			}
		}
	}
	return ""
}

// broken is an error unless the program ended well with its last line whole. Told: it has
// said why it did not.
func (a answer) broken(told bool) error {
	switch {
	case a.text != "" && !strings.HasSuffix(a.text, "\n"):
		return fmt.Errorf("%s ended in the middle of a line%s: the cards of the machine are unknown", a.program, a.ended())
	case a.exit != nil && !told:
		return fmt.Errorf("%s failed%s: the cards of the machine are unknown", a.program, a.ended())
	}
	return nil
}

// ended says how the program ended, if not well.
func (a answer) ended() string {
	if a.exit == nil {
		return ""
	}
	return " (" + a.exit.Error() + ")"
}

// mostOutput bounds what the program may say: 16 cards with a hundred processes each are
// below 200 KiB.
const mostOutput = 1 << 20

// run calls the program. A process that a sick driver holds cannot be killed: it is left
// behind when its time is up, and the goroutine that waits for it ends when it does.
func (s smi) run(parent context.Context, args ...string) (answer, error) {
	path, err := exec.LookPath(s.Program)
	if err != nil {
		return answer{}, errNoProgram
	}
	limit := min(s.Timeout, time.Until(s.end))
	ctx, cancel := context.WithTimeout(parent, limit)
	defer cancel()
	out := &bounded{full: cancel}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = time.Second // for a child of its own that holds the pipe
	if err := cmd.Start(); err != nil {
		return answer{}, fmt.Errorf("%s does not start: %w", s.Program, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the process, which is killed when its time is up; run waits, but for one that cannot be killed
	const patience = 2 * time.Second
	select {
	case err = <-ended:
	case <-ctx.Done():
		select {
		case err = <-ended:
		case <-time.After(patience):
			err = ctx.Err()
		}
	}
	text, over := out.take()
	switch {
	case over:
		return answer{}, fmt.Errorf("%s wrote more than %d bytes, which is not a list of cards", s.Program, mostOutput)
	case parent.Err() != nil:
		return answer{}, fmt.Errorf("%s %s: %w", s.Program, args[0], parent.Err())
	case ctx.Err() != nil:
		return answer{}, fmt.Errorf("%s did not answer within %s: the driver or a GPU hangs; search the kernel's log for NVRM and Xid, and restart the machine", s.Program, limit.Round(time.Millisecond))
	}
	return answer{program: s.Program, text: text, exit: err}, nil
}

// bounded keeps the first mostOutput bytes.
type bounded struct {
	full func()

	mu   sync.Mutex
	kept bytes.Buffer // guarded by mu
	over bool         // guarded by mu
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept.Len()+len(p) > mostOutput {
		b.over = true
		b.full()
		return len(p), nil
	}
	return b.kept.Write(p)
}

func (b *bounded) take() (text string, over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.kept.String(), b.over
}

// short is a text of the program's for a message.
func short(text string) string {
	const most = 160
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "�")), " ")
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

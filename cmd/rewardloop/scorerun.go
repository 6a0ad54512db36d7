package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// The way of a line: scan reads it; feed makes a sample of it, waits for room in the
// loop and submits it; the item joins a queue in the order of the input; write takes
// the queue's first, waits for its result and writes it. Each of the three is one
// goroutine.
//
// Three bounds hold memory. The loop's own queue stays shorter than depth samples and
// bytes bytes, so that no sample waits for long. A sample that has its score and
// waits for its prompt group counts as neither: its pixels are gone, only its result
// is kept, and counting it would let a group that is spread over the file wait for
// members that were never read. What bounds those, and results that wait for an
// earlier line's, is readAhead. A group spread wider than that closes at its
// deadline with the members it has.

// readAhead is how many lines may be read beyond the first one without a result. A
// result is about 1 KiB.
const readAhead = 1 << 16

// offlineRun is the run's name in the loop.
const offlineRun = "_offline"

// item is one line on its way. Immutable once queued.
type item struct {
	number int
	end    int64
	id     string
	group  groupName
	size   int          // of the group; 0: none
	future *loop.Future // nil: rejected
	sent   time.Time    // when the loop had taken it
	err    error        // why it was rejected
	// malformed: its line is no sample.
	malformed bool
}

// groupName tells groups apart as the loop does.
type groupName struct {
	split rewards.Split
	step  int64
	uid   string
}

// scoring is one run over a file.
type scoring struct {
	loop    *loop.Manager
	show    *progress
	media   *mediaFiles
	depth   int                       // samples in the loop's queue
	bytes   int64                     // of frames in the loop
	patient time.Duration             // how long one sample may wait for room
	items   chan *item                // closed by feed
	encode  func(*outputLine) []byte  // a line of the output
	head    []byte                    // of the output
	keep    func(line []byte) error   // takes the sample of every item, null of one that is none; nil: nobody needs them
	cut     atomic.Pointer[time.Time] // when the run was told to end before the input did; nil: not

	room int // samples that may be submitted before looking again; feed's own
}

// run scores in and writes out. It returns an error unless all of the input was read
// and answered; samples that were not scored are no error.
func (s *scoring) run(ctx context.Context, in lineSource, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// What is in flight is answered as cancelled, so that the writer comes to its end.
	defer context.AfterFunc(ctx, func() {
		now := time.Now()
		s.cut.Store(&now)
		s.loop.Stop()
	})()
	lines := make(chan inputLine)
	failed := make(chan error, 1)
	go func() { failed <- scan(ctx, in, lines) }() // ends with the input; a read from a terminal only with the process
	fed := make(chan error, 1)
	go func() { fed <- s.feed(ctx, lines, failed) }() // waited for below
	show := make(chan struct{})
	go func() { defer close(show); s.show.run(ctx) }() // ends with ctx
	werr := s.write(out, cancel)
	ferr := <-fed
	cancel(nil)
	<-show
	return errors.Join(ferr, werr)
}

// scan reads lines until the input or ctx ends.
func scan(ctx context.Context, in lineSource, lines chan<- inputLine) error {
	defer close(lines)
	last := 0
	for {
		line, err := in.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading after line %d: %w", last, err)
		}
		last = line.number
		select {
		case lines <- line:
		case <-ctx.Done():
			return nil
		}
	}
}

// feed submits the samples of lines and queues an item for each.
func (s *scoring) feed(ctx context.Context, lines <-chan inputLine, failed <-chan error) error {
	defer close(s.items)
	last := 0
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				s.closeGroups(ctx)
				return errors.Join(<-failed, s.interrupted(ctx, last))
			}
			it := s.accept(ctx, line)
			if it == nil {
				return s.interrupted(ctx, last)
			}
			if err := s.kept(line, it); err != nil {
				return fmt.Errorf("keeping line %d: %w", line.number, err)
			}
			last = it.number
			s.show.read(it)
			s.items <- it // the writer goes on until this is closed, whatever happens
		case <-ctx.Done():
			return s.interrupted(ctx, last)
		}
	}
}

// kept hands a sample to whoever keeps them, in the order of the items.
func (s *scoring) kept(line inputLine, it *item) error {
	if s.keep == nil {
		return nil
	}
	if it.malformed {
		return s.keep([]byte("null"))
	}
	return s.keep(line.text)
}

func (s *scoring) interrupted(ctx context.Context, last int) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("stopped after line %d of the input", last)
}

// accept makes an item of a line; nil if ctx ended first.
func (s *scoring) accept(ctx context.Context, line inputLine) *item {
	it := &item{number: line.number, end: line.end}
	if line.long {
		it.err, it.malformed = refuse(rewards.TooLarge, "the line is longer than %d MiB", maxLine>>20), true
		return it
	}
	l, err := line.sample()
	it.id = l.id
	if it.id == "" {
		it.id = "line-" + strconv.Itoa(line.number)
	}
	if l.sample.HasGroup() {
		it.group, it.size = groupName{l.sample.Split, l.sample.Step, l.sample.UID}, l.sample.GroupSize
	}
	if err != nil {
		it.err, it.malformed = err, true
		return it
	}
	if !s.wait(ctx) {
		return nil
	}
	sample := &l.sample
	// Ids may repeat in a file, not in the loop.
	sample.ID = clipID(it.id) + "#" + strconv.Itoa(line.number)
	if sample.Media, it.err = s.media.load(l); it.err != nil {
		return it
	}
	if it.future, it.err = s.submit(ctx, sample); it.err != nil && ctx.Err() != nil {
		return nil
	}
	it.sent = time.Now()
	return it
}

// sample is what a line says. On an error the id is set if it could be read.
func (line *inputLine) sample() (*sampleLine, error) {
	if line.bad != nil {
		return &sampleLine{}, line.bad
	}
	l, err := parseLine(line.text)
	l.images, l.video = append(l.images, line.images...), append(l.video, line.frames...)
	if err == nil {
		err = l.oneMedia()
	}
	return l, err
}

// clipID leaves room for the line's number below the bound on names.
func clipID(id string) string {
	const most = wire.MaxNameBytes - 24
	if len(id) <= most {
		return id
	}
	return string(bytes.ToValidUTF8([]byte(id[:most]), nil))
}

// Pauses while the loop is full: it tells nobody when a queue gets shorter.
const (
	roomPoll  = time.Millisecond
	groupPoll = 20 * time.Millisecond
)

// wait returns when the loop has room, or false when ctx has ended.
func (s *scoring) wait(ctx context.Context) bool {
	for ctx.Err() == nil {
		if s.room > 0 {
			if held, _ := s.loop.Bytes(); held < s.bytes {
				s.room--
				return true
			}
		}
		queued := 0
		for _, r := range s.loop.Runs(0) {
			if r.Run == offlineRun {
				queued = r.Queued
			}
		}
		if s.room = s.depth - queued; queued == 0 {
			s.room-- // even over bytes: those are running, or a scorer has left them behind
			return true
		}
		if held, _ := s.loop.Bytes(); s.room <= 0 || held >= s.bytes {
			pause(ctx, roomPoll)
		}
	}
	return false
}

// submit hands a sample to the loop, waiting while its memory is full.
func (s *scoring) submit(ctx context.Context, sample *rewards.Sample) (*loop.Future, error) {
	give := time.Now().Add(s.patient)
	for {
		f, err := s.loop.Submit(ctx, loop.Submission{Run: offlineRun, Sample: sample})
		if err == nil || rewards.ClassOf(err) != rewards.Unavailable || time.Now().After(give) || !pause(ctx, groupPoll) {
			return f, err
		}
	}
}

// closeGroups returns when every sample has its result. When all that is left is held
// for members of their groups that are not in the input, it stops the loop, which
// answers them with the means of the members there are.
func (s *scoring) closeGroups(ctx context.Context) {
	for ctx.Err() == nil {
		left, n := s.loop.Pending(readAhead + 1)
		if n == 0 {
			return
		}
		held := 0
		for _, p := range left {
			if p.Stage == "waiting_for_group_mean" {
				held++
			}
		}
		if held == n {
			s.loop.Stop()
			return
		}
		pause(ctx, groupPoll+time.Duration(n)*10*time.Microsecond) // looking costs about 1 µs each
	}
}

// pause reports whether it lasted to its end.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// write writes a line for every item in order. An error ends the run: stop is called,
// and the rest of the items are waited for and dropped.
func (s *scoring) write(out io.Writer, stop context.CancelCauseFunc) error {
	w := bufio.NewWriterSize(out, 64<<10)
	var broken error
	fails := func(err error) {
		if err != nil && broken == nil {
			broken = err
			stop(err)
		}
	}
	_, err := w.Write(s.head)
	fails(err)
	for {
		if len(s.items) == 0 { // whoever reads along sees what there is
			fails(w.Flush())
		}
		it, ok := <-s.items
		if !ok {
			break
		}
		if it.future != nil && !ended(it.future) {
			fails(w.Flush())
			s.show.waits(it)
			<-it.future.Done() // its deadline is the loop's
		}
		r := s.answer(it)
		line := s.encode(r)
		s.show.done(it, r)
		_, err := w.Write(line) // of a writer that failed once it fails at once
		fails(err)
	}
	if broken != nil {
		return fmt.Errorf("writing the scores: %w", broken)
	}
	return nil
}

func ended(f *loop.Future) bool {
	select {
	case <-f.Done():
		return true
	default:
		return false
	}
}

// outputLine is one line of the output. Nothing is left out but fallback, which is
// there where the profile's on_sample_failure asks for one, and step_scores, which only
// rewards of several steps have. A group's statistics are left out: which members carry
// them depends on who was scored last.
type outputLine struct {
	ID          string                   `json:"id"`
	Outcome     rewards.Outcome          `json:"outcome"`
	RewardScore *float64                 `json:"reward_score"`
	ExtraInfo   map[string]any           `json:"reward_extra_info"`
	Details     map[string]any           `json:"details"`
	Errors      []rewards.ComponentError `json:"errors"`
	Fallback    *wire.Fallback           `json:"fallback,omitempty"`
	StepScores  []float64                `json:"step_scores,omitempty"`
	TimingMS    map[string]float64       `json:"timing_ms"`
}

// answer makes the output line of an item whose result is there.
func (s *scoring) answer(it *item) *outputLine {
	r := &outputLine{ID: it.id, Outcome: rewards.Rejected}
	if it.future == nil {
		r.Errors = []rewards.ComponentError{{
			Class: rewards.ClassOf(it.err), Message: fmt.Sprintf("line %d: %v", it.number, it.err),
		}}
	} else {
		res, _ := it.future.Wait(context.Background()) // it is there
		r.Outcome, r.RewardScore, r.ExtraInfo, r.Details = res.Outcome, res.RewardScore, res.ExtraInfo, res.Details
		r.Errors, r.Fallback, r.TimingMS = res.Errors, res.Fallback, res.TimingMS
		r.StepScores = res.StepScores
		if s.cutOff(it, res) {
			*r = outputLine{ID: it.id, Outcome: rewards.OutcomeCancelled, TimingMS: res.TimingMS, Errors: []rewards.ComponentError{{
				Class: rewards.Cancelled, Message: "the run was stopped before this result was final",
			}}}
		}
	}
	if r.ExtraInfo == nil {
		r.ExtraInfo = map[string]any{}
	}
	if r.Details == nil {
		r.Details = map[string]any{}
	}
	if r.Errors == nil {
		r.Errors = []rewards.ComponentError{}
	}
	if r.TimingMS == nil {
		r.TimingMS = map[string]float64{}
	}
	return r
}

// cutOff reports whether a result is only there because the run was told to end: the
// loop then finishes a sample that waits for its group with the members there are,
// which depends on the moment and is no score.
func (s *scoring) cutOff(it *item, res *wire.Result) bool {
	cut := s.cut.Load()
	final := it.sent.Add(time.Duration(res.TimingMS["total"] * float64(time.Millisecond)))
	return cut != nil && final.After(*cut)
}

// encode writes a line. A result that JSON cannot hold, such as a NaN in a scorer's
// details, becomes a failure of its sample.
func encode(r *outputLine) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		*r = outputLine{
			ID: r.ID, Outcome: rewards.Failed, ExtraInfo: map[string]any{}, Details: map[string]any{}, TimingMS: map[string]float64{},
			Errors: []rewards.ComponentError{{Class: rewards.Internal, Message: "the result cannot be written: " + err.Error()}},
		}
		b.Reset()
		_ = enc.Encode(r) //nolint:errchkjson // of strings; it cannot fail
	}
	return b.Bytes()
}

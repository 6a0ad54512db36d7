package python

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rewardloop/rewardloop/internal/infer"
	"github.com/rewardloop/rewardloop/internal/localmodel"
	"github.com/rewardloop/rewardloop/internal/prompt"
	"github.com/rewardloop/rewardloop/rewards"
)

//go:embed forms.py
var formsSource []byte

// ScoreGroup is the Signature score_group(samples), which this project defines.
const ScoreGroup = "score_group"

// form is what the server knows of a call form; the rest is in forms.py.
type form struct {
	name    string
	batches bool   // it may be called with batches, too: its samples do not depend on each other
	media   bool   // it may look at pictures, videos and sound
	probe   string // the known sample that a function is called with that takes batches
}

// forms are the call forms, as forms.py has them.
//
//nolint:gochecknoglobals // a table
var forms = []form{
	{ScoreGroup, false, true, ""},
	{"rm_gallery", false, false, ""},
	{"openjudge", true, false, textKind},
	{"trl", true, true, textKind},
	{"slime", true, false, textKind},
	{"ms_swift", true, true, textKind},
	{"openrlhf", true, false, textKind},
	{"ddpo", true, true, string(rewards.Image)},
}

// Signatures returns the values of Options.Signature.
func Signatures() (names []string) {
	for _, f := range forms {
		names = append(names, f.name)
	}
	return names
}

// TakesBatches reports whether a function with the signature may be called with batches of samples
// from any groups.
func TakesBatches(signature string) bool {
	f, _ := Options{Signature: signature}.form()
	return f.batches
}

func (o Options) form() (form, bool) {
	i := slices.IndexFunc(forms, func(f form) bool { return f.name == o.Signature })
	if i < 0 {
		return form{}, false
	}
	return forms[i], true
}

// Grouped reports whether the function is called with whole prompt groups, instead of single
// samples or batches of samples.
func (o Options) Grouped() bool {
	return o.Signature != "" && (o.Placement == nil || !o.Placement.Batch)
}

// checkForm names what is wrong with Signature and Reference.
func (o Options) checkForm() error {
	f, known := o.form()
	switch {
	case o.Signature != "" && !known:
		return fmt.Errorf("python: signature %q, want one of %s", o.Signature, strings.Join(Signatures(), ", "))
	case known && !o.Grouped() && !f.batches:
		return fmt.Errorf("python: batch: true calls a function with single samples in batches, but signature: %s needs whole prompt groups", o.Signature)
	case o.Reference != "" && !o.Grouped():
		return errors.New("python: reference is for functions of whole prompt groups")
	}
	if err := prompt.CheckReference(o.Reference); err != nil {
		return fmt.Errorf("python: %w", err)
	}
	return nil
}

// sources are the texts that a process needs besides process.py where there is a signature.
func (o Options) sources() [][2]string {
	if o.Signature == "" {
		return nil
	}
	return [][2]string{{"rewardloop_model", string(modelSource)}, {"rewardloop_forms", string(formsSource)}}
}

// askGrouper has a process score a group. A failure that the process reports is an error as well.
type askGrouper interface {
	rewards.Warmer
	rewards.Queuer
	rewards.Concurrent
	rewards.ConcurrencyReasoner
	rewards.Reliant

	askGroup(ctx context.Context, g *groupCall) (reply, error)
}

var (
	_ askGrouper = (*Scorer)(nil)
	_ askGrouper = (*Model)(nil)
)

// GroupFunction is a user's function that scores whole prompt groups, in its own processes (like a
// Scorer) or on devices (like a Model). It is safe for concurrent use.
type GroupFunction struct {
	askGrouper

	opts Options
}

var (
	_ rewards.GroupScorer = (*GroupFunction)(nil)
	_ rewards.Closer      = (*GroupFunction)(nil)
)

// declaredGroup is a GroupFunction whose extra fields are known at load.
type declaredGroup struct{ *GroupFunction }

var _ rewards.ExtraFielder = declaredGroup{}

// ExtraFields returns Options.ExtraKeys by name, and the columns of comparisons with a reference.
func (d declaredGroup) ExtraFields() []rewards.Field {
	fields := fieldsOf(d.opts)
	if d.opts.Reference != "" {
		for _, name := range []string{"win", "win_and"} {
			if d.opts.ExtraKeys[name] == "" {
				fields = append(fields, rewards.Field{Name: name, Kind: rewards.Number})
			}
		}
	}
	return fields
}

// makeGroup makes a function of groups. Nothing is started.
func (f *Functions) makeGroup(opts Options) (rewards.GroupScorer, error) {
	if !opts.Grouped() {
		return nil, fmt.Errorf("python: %s scores single samples: it has no signature", opts.label())
	}
	g := &GroupFunction{opts: opts.WithDefaults()}
	if opts.Placement != nil {
		m, err := f.newModel(opts)
		if err != nil {
			return nil, err
		}
		g.askGrouper = m
	} else {
		s, err := f.newScorer(opts)
		if err != nil {
			return nil, err
		}
		g.askGrouper = s
	}
	if opts.ExtraKeys != nil {
		return declaredGroup{g}, nil
	}
	return g, nil
}

// Close ends the processes of a function. The processes of a model end with the pool of devices.
func (g *GroupFunction) Close() error {
	if c, ok := g.askGrouper.(rewards.Closer); ok {
		return c.Close()
	}
	return nil
}

// Stats returns a snapshot of a function's processes, or the zero value for a model.
func (g *GroupFunction) Stats() Stats {
	if s, ok := g.askGrouper.(*Scorer); ok {
		return s.Stats()
	}
	return Stats{}
}

// ScoreGroup calls the function once with the members, in the order of Group.Members. In validation
// the reference follows the members, and its score is dropped. A member whose picture cannot be
// decoded fails alone, and is not passed to the function. None, NaN or an exception as a member's
// score fails only that member; in the forms of TRL and ms-swift, None skips the member. Any other
// failure fails the whole group, with the error that a sample has in Scorer.Score or Model.Score:
// an exception, a wrong length, a hang, a crash. The output that the function prints is in the
// details of the first member that has a score.
func (g *GroupFunction) ScoreGroup(ctx context.Context, group *rewards.Group) ([]rewards.MemberScore, error) {
	c, err := newGroupCall(g.opts, group)
	if err != nil {
		return nil, err
	}
	r, err := g.askGroup(ctx, c)
	if errors.Is(err, errNobodyLeft) {
		return c.scores, nil
	}
	if err != nil {
		return nil, err
	}
	return c.read(g.opts, r)
}

// groupHead is what a process gets of a group beside the bytes of its media.
type groupHead struct {
	UID         string            `json:"uid"`
	Run         string            `json:"run"`
	Split       rewards.Split     `json:"split"`
	Step        int64             `json:"step"`
	Size        int               `json:"size"`
	Missing     int               `json:"missing"`
	Absent      map[string]string `json:"absent"`
	LastMeanStd *float64          `json:"last_mean_std"`
	Reference   *string           `json:"reference,omitempty"` // in validation
	Members     []memberHead      `json:"members"`
}

type memberHead struct {
	head

	Values map[string]float64       `json:"values"`
	Failed map[string]rewards.Class `json:"failed"`
}

// groupCall is one call of a function with a group. It belongs to one goroutine.
type groupCall struct {
	group *rewards.Group
	media bool
	// frames are those of videos that are sent.
	frames rewards.FrameChoice
	head   groupHead
	sent   []int // the place in group.Members of each of head.Members
	// scores has one entry for each member of the group; those of members that cannot be shown hold the reason.
	scores []rewards.MemberScore
}

// errNobodyLeft: no member of the group can be shown.
var errNobodyLeft = errors.New("no member of the group has an input for the function")

func newGroupCall(opts Options, g *rewards.Group) (*groupCall, error) {
	f, _ := opts.form()
	c := &groupCall{group: g, media: f.media, frames: opts.Frames, head: groupHead{
		UID: g.UID, Run: g.Run, Split: g.Split, Step: g.Step, Size: g.Size, LastMeanStd: g.LastMeanStd,
	}}
	if opts.Reference != "" && g.Split == rewards.Val {
		text, err := prompt.Reference(opts.Reference, g)
		if err != nil {
			return nil, err
		}
		c.head.Reference = &text
	}
	return c, nil
}

// decode makes what is sent of the members, now that the call has its place. A member whose media
// cannot be decoded is left out. The bytes are read until they are given back, also after an error.
func (c *groupCall) decode(ctx context.Context) (*payload, error) {
	p := &payload{frames: c.frames}
	c.head.Members, c.sent, c.scores = nil, nil, make([]rewards.MemberScore, len(c.group.Members))
	c.head.Missing, c.head.Absent = c.group.Missing, maps.Clone(c.group.Absent)
	for i, m := range c.group.Members {
		var media []tensor
		if c.media {
			var err error
			if media, err = p.add(ctx, m.Sample); ctx.Err() != nil {
				return p, err
			} else if err != nil {
				c.scores[i].Err = err
				c.leaveOut(m.Sample.ID)
				continue
			}
		}
		c.sent = append(c.sent, i)
		c.head.Members = append(c.head.Members, memberHead{head{m.Sample, media}, m.Values, m.Failed})
	}
	if len(c.sent) == 0 {
		return p, errNobodyLeft
	}
	return p, nil
}

func (c *groupCall) leaveOut(id string) {
	c.head.Missing++
	if c.head.Absent == nil {
		c.head.Absent = map[string]string{}
	}
	c.head.Absent[id] = rewards.AbsentFailed
}

// read puts what a process said of the members that it saw into the scores of all.
func (c *groupCall) read(opts Options, r reply) ([]rewards.MemberScore, error) {
	if r.Op != "result" || len(r.Members) != len(c.sent) {
		return nil, fmt.Errorf("%w: %s: the process answered %q with %d scores for %d members", rewards.Internal, opts.label(), r.Op, len(r.Members), len(c.sent))
	}
	for at, said := range r.Members {
		score := &c.scores[c.sent[at]]
		if score.Err = said.failure(opts); score.Err != nil {
			continue
		}
		if score.Score, score.Err = said.score(opts); score.Err == nil && r.Output != "" {
			score.Score.Details = withPrinted(score.Score.Details, r.Output)
			r.Output = ""
		}
	}
	return c.scores, nil
}

// askGroup implements askGrouper.
func (s *Scorer) askGroup(ctx context.Context, g *groupCall) (reply, error) {
	return s.ask(ctx, call{Op: "score_group", group: g})
}

// maxGroupText bounds the text of a group that goes to a process of a model, whose frame says a little more.
const maxGroupText = maxCallHeader - 1<<10

// askGroup implements askGrouper: the group is one message to a process of the model.
func (m *Model) askGroup(ctx context.Context, g *groupCall) (reply, error) {
	if m.lacks != nil {
		return reply{}, localmodel.Classify(ctx, m.lacks)
	}
	leave, err := m.net.Enter(ctx)
	if err != nil {
		return reply{}, localmodel.Classify(ctx, err)
	}
	defer leave()
	media, err := g.decode(ctx)
	if err != nil {
		media.giveBack()
		return reply{}, err
	}
	js, err := json.Marshal(g.head)
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %s: %w", rewards.BadInput, m.opts.label(), err)
	case len(js) > maxGroupText:
		err = fmt.Errorf("%w: group %q has %d bytes of text, the limits are %d and %d of tensors", rewards.TooLarge, g.group.UID, len(js), maxGroupText, maxBody)
	}
	if err != nil {
		media.giveBack()
		return reply{}, err
	}
	return m.ask(ctx, g.group.UID, &infer.Message{Head: js, Blobs: media.body, Release: media.giveBack})
}

package compare

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/rewardloop/rewardloop/internal/chat"
	"github.com/rewardloop/rewardloop/internal/prompt"
	"github.com/rewardloop/rewardloop/rewards"
)

// participant is who takes part in comparisons: a member, or the reference. It does not
// change once it is made.
type participant struct {
	member   int // of Group.Members; asReference for the reference
	id       string
	key      uint64
	text     string      // what is shown of it, unless pictures are
	pictures []chat.Part // an image, or frames of a video
}

const (
	asReference = -1
	// referenceID is what Details call the reference.
	referenceID = "reference"
)

// keyOf is what draws for a participant: a digest of the group's uid and the sample's
// id, and of nothing that depends on how they came here.
func keyOf(uid, id string) uint64 {
	sum := sha256.Sum256([]byte(uid + "\x00" + id))
	return binary.LittleEndian.Uint64(sum[:])
}

// maxEncoded bounds the encoded pictures of one group that are held, in bytes.
const maxEncoded = 1 << 30

// participants makes one of each member, in their order. A member that cannot be shown
// has an error in the second list, and nil in the first.
func (s *showing) participants(ctx context.Context, g *rewards.Group) ([]*participant, []error, error) {
	found, faults := make([]*participant, len(g.Members)), make([]error, len(g.Members))
	var encoded atomic.Int64
	err := each(ctx, len(g.Members), maxDecoding, func(ctx context.Context, i int) error {
		if found[i], faults[i] = s.participant(ctx, g, i); ctx.Err() != nil {
			return rewards.Ended(ctx, false, rewards.BlameDependency, fmt.Errorf("sample %q: %w", g.Members[i].Sample.ID, ctx.Err()))
		}
		if found[i] == nil {
			return nil
		}
		for _, part := range found[i].pictures {
			encoded.Add(int64(len(part.Image)))
		}
		if n := encoded.Load(); n > maxEncoded {
			return fmt.Errorf("%w: the pictures of group %q have more than %d bytes; set image_format to jpeg, resize, or show fewer frames",
				rewards.BadInput, g.UID, maxEncoded)
		}
		return nil
	})
	return found, faults, err
}

// participant makes one of a member, or says why it cannot be shown. A picture that
// makes a decoder panic is that member's alone.
func (s *showing) participant(ctx context.Context, g *rewards.Group, i int) (*participant, error) {
	m := g.Members[i].Sample
	// The zero byte keeps a sample of that id apart from the reference.
	p := &participant{member: i, id: m.ID, key: keyOf(g.UID, "\x00"+m.ID)}
	err := rewards.Guard(func() (err error) {
		if media, _ := m.Visual(); s.Show == showMedia || (s.Show == showAuto && media != nil) {
			p.pictures, err = s.pictures(ctx, m)
		} else {
			p.text, err = response(m)
		}
		return err
	})
	if rewards.ClassOf(err) == rewards.Panicked {
		err = fmt.Errorf("showing sample %q: %w", m.ID, err)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// referee makes the reference a participant. It is text, and is compared with text.
func referee(g *rewards.Group, members []*participant, path string) (*participant, error) {
	for _, p := range members {
		if p != nil && len(p.pictures) > 0 {
			return nil, fmt.Errorf("%w: sample %q is shown as a picture, and the reference is text; drop the option reference, or set show to text",
				rewards.BadInput, p.id)
		}
	}
	text, err := prompt.Reference(path, g)
	if err != nil {
		return nil, err
	}
	return &participant{member: asReference, id: referenceID, key: keyOf(g.UID, referenceID), text: text}, nil
}

// response is the text that is shown. A rollout that ended at once has an empty one; it
// is missing where the sample carries media instead.
func response(s *rewards.Sample) (string, error) {
	switch {
	case s.Response == "" && len(s.Media) > 0:
		return "", fmt.Errorf("%w: sample %q has no response", rewards.BadInput, s.ID)
	case s.Response == "":
		return "(nothing)", nil
	}
	return s.Response, prompt.Bounded(s, "response", s.Response) // it names the sample
}

// describe is what the question says of the participant whose pictures begin with
// number first.
func (p *participant) describe(first int) string {
	switch n := len(p.pictures); n {
	case 0:
		return p.text
	case 1:
		return fmt.Sprintf("Picture %d.", first)
	default:
		return fmt.Sprintf("Pictures %d to %d, frames of a video in their order.", first, first+n-1)
	}
}

// same reports whether a judge would be shown the same thing twice.
func (p *participant) same(q *participant) bool {
	return p.text == q.text && slices.EqualFunc(p.pictures, q.pictures, func(a, b chat.Part) bool {
		return a.MIME == b.MIME && bytes.Equal(a.Image, b.Image)
	})
}

// present lists the pictures of participants, and what the question says of each.
func present(shown ...*participant) (pictures []chat.Part, words []string) {
	for _, p := range shown {
		words = append(words, p.describe(len(pictures)+1))
		pictures = append(pictures, p.pictures...)
	}
	return pictures, words
}

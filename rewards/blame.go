package rewards

import "errors"

// Blame is the party that is responsible for an error. The class of an error is the kind of
// failure, but does not show who can fix it: the class "unavailable" covers both an engine that is
// down and a process that does not start. Blame is set where it is known, is sent on the wire
// together with the class, and decides who tries again:
//
//	sample       nobody tries again
//	reward       the component's retries (default 0), on the same worker
//	dependency   the caller of the service, within the deadline; then the component's retries
//	worker       another worker, up to loop.max_attempts
//	nobody       the caller left, or the time passed while the sample waited
type Blame string

// The blames.
const (
	BlameSample     Blame = "sample"     // the sample, which no worker can score: bad input, no target
	BlameReward     Blame = "reward"     // the reward function or model: exception, NaN, no score, hang, crash
	BlameDependency Blame = "dependency" // an engine or service that the reward uses
	BlameWorker     Blame = "worker"     // the worker, its machine, its devices or its installed software
	BlameNobody     Blame = "nobody"     // nobody: time passed in a queue, or the caller left
)

// Blames returns all blames, for checks and labels.
func Blames() []Blame {
	return []Blame{BlameSample, BlameReward, BlameDependency, BlameWorker, BlameNobody}
}

// blamed is an error whose blame is known.
type blamed struct {
	error
	blame     Blame
	permanent bool
}

// Unwrap returns the error that is blamed on somebody.
func (e *blamed) Unwrap() error { return e.error }

// Blamed returns err with the blame b. The text and the wrapped errors do not change. If an error
// has several blames, the outermost applies. Blamed returns nil if err is nil.
func Blamed(b Blame, err error) error {
	if err == nil {
		return nil
	}
	return &blamed{error: err, blame: b}
}

// Permanent returns err with the blame b, and marks that every sample will fail in the same way:
// for example because a key is refused or the engine does not have the model (BlameDependency), or
// because this worker lacks a module until it is restarted (BlameWorker). Permanent returns nil if
// err is nil.
func Permanent(b Blame, err error) error {
	if err == nil {
		return nil
	}
	return &blamed{error: err, blame: b, permanent: true}
}

// BlameOf returns the blame of err and whether it is permanent. An error without an explicit blame
// has the most common blame of its class. BlameOf returns "" if err is nil.
func BlameOf(err error) (b Blame, permanent bool) {
	if err == nil {
		return "", false
	}
	if e, ok := errors.AsType[*blamed](err); ok {
		return e.blame, e.permanent
	}
	return ClassOf(err).blame(), false
}

// blame is what a class means where nothing more is known.
func (c Class) blame() Blame {
	switch c {
	case BadInput, TooLarge, Malformed, IDReused, OverCredit, UnsupportedEncoding:
		return BlameSample
	case Unavailable:
		return BlameDependency
	case Lost, UnknownReward, Draining:
		return BlameWorker
	case Cancelled, Expired:
		return BlameNobody
	}
	return BlameReward
}

// Package compare scores the members of a prompt group against one another: what a
// model says of them in pairs or in one list, or where each stands by the value of
// another component.
//
// The life of a pairwise score: every member becomes a participant, which is its
// response, its picture or the frames of its video, encoded once; one that cannot be
// shown fails alone. Of a validation group the reference answer takes part, too. The
// pairs are planned, all of them or some of each, and the questions of the whole group
// go out at once, bounded, through a chat.Chatter: both orders of a pair, so that the place
// of an answer does not decide. An answer that cannot be read is asked for again, past
// the cache, and then leaves the pair unknown; an unknown pair is no tie, and a
// participant with too many of them is withdrawn as if it had never been there. What is
// known makes a Table, and a method makes scores of it.
//
// The methods are pure functions of a Table. Nothing depends on the order in which
// members or answers arrive: what has to be drawn (who is shown first, which of several
// equally good ways out of a cycle is taken) is drawn by the keys of the participants,
// which are made of the group's uid and the samples' ids.
//
// ScoreGroup starts goroutines for its questions and waits for all of them.
package compare

// Package compare scores the members of a prompt group by comparison: by the answers of a model
// about pairs or one list of members, or by the rank of each member's value from another component.
//
// The life of a pairwise score: every member becomes a participant, with its response, its picture
// or the frames of its video, encoded once. A member that cannot be shown fails alone. In a
// validation group the reference answer is a participant, too. The package plans the pairs, either
// all pairs or some for each member, and sends the questions of the whole group at the same time,
// with a limit, through a chat.Chatter. Both orders of a pair are asked, so that the position of an
// answer does not decide. If an answer is unreadable, the question is asked again, past the cache;
// after that the pair is unknown. An unknown pair is not a tie, and a participant with too many
// unknown pairs is withdrawn, together with all its pairs. The known pairs form a table, and a
// method computes scores from the table.
//
// The methods are pure functions of a table. Nothing depends on the order in which members or
// answers arrive. Random choices (which participant is shown first, which of several equally good
// ways out of a cycle is taken) follow from the keys of the participants, which are computed from
// the group's uid and the samples' ids.
//
// ScoreGroup starts goroutines for its questions and waits for all of them.
package compare

// Package judge scores samples with a model behind an engine: a vision language model that reads,
// rates or answers yes or no, or a reward model that classifies.
//
// The life of a score: prepare makes the questions of a sample from its prompt,
// response and ground truth, before a pixel is decoded. The frames are picked and
// encoded, and all questions of the sample (one for each frame, or for each rubric)
// go out at once through a chat.Chatter, pictures before text. Each answer is read by the
// scorer's own rule; one that cannot be read is asked for again, past the cache, as
// often as answer_retries says, and then fails the sample as InvalidScore with the
// answer's beginning. It is never 0. The readings make the value by their weighted
// mean, and go to Details with the answers.
//
// Formulas and prompts are those of the projects that published them, named at each
// scorer; judge, rubric and digit are this project's own.
package judge

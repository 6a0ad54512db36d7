// Package judge scores samples with a model in an engine: a vision language model that reads text
// in pictures, gives ratings or answers yes or no, or a reward model that classifies.
//
// The life of a score: prepare builds the questions of a sample from its prompt, response and
// ground truth, before any pixel is decoded. The frames are selected and encoded, and all questions
// of the sample (one for each frame or for each rubric) are sent at the same time through a
// chat.Chatter, pictures before text. Each scorer has its own rule for reading an answer. If an
// answer is unreadable, the question is asked again, past the cache, up to answer_retries times;
// after that the sample fails with the class InvalidScore and the beginning of the answer. The
// score is never 0 instead. The value is the weighted mean of the readings. Details contains the
// readings and the answers.
//
// The formulas and prompts are those of the projects that published them, which are stated at each
// scorer; judge, rubric and digit are this project's own.
package judge

// Package remote has the scorers that call another HTTP service: http, with the protocols of
// existing reward services, and sandbox_fusion, verl's code reward over a SandboxFusion server.
//
// The life of a score: [Specs] builds a scorer from its options and asks for the
// upstream it will use, without connecting. Score turns the sample into
// an item, which shares no byte with the sample: prompt, encoded picture, or a
// whole request body. A protocol that takes lists may wait a moment for other
// samples (batch.go); the items become one request, sent through an outbound.Doer,
// which owns limits, retries and addresses. The answer is decoded into a tree by a
// decoder that runs nothing, JSON and pickle alike, and read into as many verdicts
// as there were items: a score, or why there is none. A batch that failed as a
// whole is asked for again sample by sample, once.
//
// What an answer does not say is not made up: a missing, surplus, non-finite or
// wrongly typed score is a failure of a named class, and a declared extra field
// that is missing is absent.
//
// The protocols are those of verl-omni (http_scorer_client.py,
// latent_http_scorer_client.py), flow_grpo (rewards.py) and its reward-server,
// deepgen_rl, UniRL's reward service, Flow-Factory (my_reward_remote.py), slime,
// OpenRLHF, cosmos-rl (reward_service) and verl (sandbox_fusion).
package remote

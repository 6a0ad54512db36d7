// Package remote contains the scorers that call another HTTP service: http, with the protocols of
// existing reward services, and sandbox_fusion, verl's code reward with a SandboxFusion server.
//
// The life of a score: [Specs] builds a scorer from its options and gets the upstream that the
// scorer will use, without connecting. Score turns the sample into an item, which shares no bytes
// with the sample: prompt, encoded picture, or a whole request body. If the protocol supports
// lists, the item may wait a short time for other samples (batch.go). The items become one request,
// which is sent through an outbound.Doer with its limits, retries and addresses. The answer, JSON
// or pickle, is decoded into a tree by a decoder that executes no code, and is read into one
// verdict for each item: a score, or the reason why there is none. If a batch fails as a whole, its
// samples are sent again one by one, once.
//
// Missing parts of an answer are never invented: a missing, surplus or non-finite score, or a score
// of the wrong type, is a failure with a class, and a missing declared extra field is absent.
//
// The protocols are those of verl-omni (http_scorer_client.py, latent_http_scorer_client.py),
// flow_grpo (rewards.py) and its reward-server, deepgen_rl, UniRL's reward service, Flow-Factory
// (my_reward_remote.py), slime, OpenRLHF, cosmos-rl (reward_service) and verl (sandbox_fusion).
package remote

package compat

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/rewardloop/rewardloop/internal/strictjson"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/wire"
)

// readUniRL reads POST /score, the protocol of unirl-reward-service (Tencent-Hunyuan/UniRL,
// unirl-reward-service/reward_service/schemas.py). The rewards it asks for are this
// server's, by name:
//
//	{"requests": [{"history": [{"text", "image_b64"}], "required_rewards": ["ocr"], "metadata": {…}|null}],
//	 "protocol_version": "1"}
//
// The last turn is scored. Two turns are an edit, the source and then the edited
// picture; the sample has the edited one first, as in flow_grpo's protocol. metadata is
// the sample's extra_info, without its ground_truth. A video is the list of its
// frames, each a picture: an encoded one ("video_b64" as a string) needs a decoder
// that is not here, and files ("video_path") are never read on a client's word.
//
//	200 {"results": [{"ocr": {"score": 0.5, "acc": 0.5}}], "errors": [{}]}
//	400 not such a body, bad base64, an unknown reward
//	422 a turn without a picture, a video that is no list of frames
//	503 no sample was accepted, and may be in a moment
//
// results and errors have one entry for each request. The numbers of a reward are its
// score, first because clients take the first, then its components. A reward without
// a score stands in errors, with the reason; one with a fallback in both. The
// identity of a request (request_id, …) and the protocol's version are given back
// where they were sent.
func readUniRL(req *Request) (*Batch, *Fault) {
	t, err := strictjson.Parse(req.Body)
	if err != nil {
		return nil, AsFault(err)
	}
	if req.Reward != "" {
		return nil, Faultf(rewards.Malformed, "the rewards are named in required_rewards, not in the URL")
	}
	u := &unirlBatch{req: req}
	if err := u.read(t); err != nil {
		return nil, AsFault(err)
	}
	return &Batch{Plans: u.plans, Answer: u.answer}, nil
}

// unirlVersion is the one version of the protocol.
const unirlVersion = "1"

// unirlBatch is a body of /score.
type unirlBatch struct {
	req       *Request
	plans     []Plan
	items     []unirlItem
	versioned bool // the body names the protocol's version
	identity  bool // a request of it has an identity
}

// unirlItem is one request: its rewards, whose plans follow each other, and what is
// given back of it.
type unirlItem struct {
	rewards  []string
	identity pairs
}

func (u *unirlBatch) read(t strictjson.Text) error {
	var requests strictjson.Text
	err := t.Object(func(key string, v strictjson.Text) error {
		switch key {
		case "requests":
			requests = v
		case "protocol_version":
			version, err := v.Str()
			if err == nil && version != unirlVersion {
				err = fmt.Errorf("%q, want %q", strictjson.Clip(version), unirlVersion)
			}
			u.versioned = true
			return err
		case "grad_mode", "call_id":
			if !v.Null() && v.Kind() != 'f' {
				return errors.New("this server does not return gradients; leave the field out")
			}
		default:
			return strictjson.ErrUnknownKey
		}
		return nil
	})
	if err != nil {
		return err
	}
	if requests == nil {
		return errors.New(`no "requests"`)
	}
	if err := requests.Array(func(_ int, v strictjson.Text) error { return u.readRequest(v) }); err != nil {
		return fmt.Errorf("requests: %w", err)
	}
	return nil
}

// unirlIdentity are the keys that are given back, in their order.
func unirlIdentity() []string {
	return []string{"request_id", "sample_id", "group_id", "source_rank", "policy_version", "scorer_version", "idempotency_key"}
}

func (u *unirlBatch) readRequest(t strictjson.Text) error {
	var item unirlItem
	var history strictjson.Text
	var sample rewards.Sample
	identity := map[string]strictjson.Text{}
	err := t.Object(func(key string, v strictjson.Text) (err error) {
		switch {
		case key == "history":
			history = v
		case key == "required_rewards":
			item.rewards, err = u.readRewards(v)
		case key == "metadata":
			sample.GroundTruth, sample.ExtraInfo, err = splitMetadata(v)
		case slices.Contains(unirlIdentity(), key):
			identity[key] = v
			err = checkIdentity(key, v)
		default:
			err = strictjson.ErrUnknownKey
		}
		return err
	})
	if err != nil {
		return err
	}
	if history == nil || item.rewards == nil {
		return errors.New("history and required_rewards are missing")
	}
	if len(identity) > 0 {
		u.identity = true
	}
	for _, key := range unirlIdentity() {
		item.identity = append(item.identity, pair{key, identity[key].Raw()})
	}
	u.items = append(u.items, item)
	made := Plan{Sample: &sample}
	if err := readHistory(history, &made); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	for _, name := range item.rewards {
		if len(u.plans) == u.req.Limits.Samples {
			return u.req.tooMany()
		}
		own := sample
		own.ID, own.Reward = fmt.Sprintf("%s-%d", u.req.ID, len(u.plans)), name
		u.plans = append(u.plans, Plan{Sample: &own, Refused: made.Refused})
	}
	return nil
}

// checkIdentity takes what can be given back as it came.
func checkIdentity(key string, v strictjson.Text) error {
	switch {
	case v.Kind() == '{' || v.Kind() == '[' || len(v) > wire.MaxNameBytes:
		return fmt.Errorf("want a string or a number of at most %d bytes", wire.MaxNameBytes)
	case key == "scorer_version" && !v.Null():
		return errors.New("the rewards of this server have no versions to pin; leave expected_scorer_version out")
	}
	return nil
}

// readRewards reads names, each once.
func (u *unirlBatch) readRewards(v strictjson.Text) ([]string, error) {
	names := []string{}
	err := v.Array(func(_ int, v strictjson.Text) error {
		name, err := v.Str()
		if err != nil {
			return err
		}
		if _, f := LookUp(u.req.Rewards, name); f != nil {
			f.Status = http.StatusBadRequest
			return f
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		return nil
	})
	return names, err
}

// readHistory fills the sample with the turn that is scored, and of an edit with its
// source.
func readHistory(t strictjson.Text, pl *Plan) error {
	var turns []strictjson.Text
	if err := t.Array(func(_ int, v strictjson.Text) error {
		turns = append(turns, v)
		return nil
	}); err != nil {
		return err
	}
	switch {
	case len(turns) == 0:
		return errors.New("no turn")
	case len(turns) > 2:
		return Faultf(rewards.BadInput, "%d turns: want one, or for an edit two, the source and the edited picture", len(turns))
	}
	slices.Reverse(turns)
	for i, v := range turns {
		text, media, err := readTurn(v, pl)
		if err != nil {
			return fmt.Errorf("[%d]: %w", len(turns)-1-i, err)
		}
		if i == 0 {
			pl.Sample.Prompt = text
		}
		pl.Sample.Media = append(pl.Sample.Media, media...)
	}
	return nil
}

func readTurn(t strictjson.Text, pl *Plan) (text string, media []*rewards.Media, err error) {
	var video *rewards.Media
	hasText := false
	err = t.Object(func(key string, v strictjson.Text) (err error) {
		if v.Null() {
			return nil
		}
		switch key {
		case "text":
			hasText = true
			text, err = v.Str()
		case "image_b64":
			var m *rewards.Media
			if m, err = readPicture(v, pl); m != nil {
				media = append(media, m)
			}
		case "video_b64":
			if v.Kind() == '"' {
				return Faultf(rewards.BadInput, `this endpoint does not decode video files: send the frames, "video_b64": [base64 of a picture, …]`)
			}
			video, err = readFrames(v, pl)
		case "video_path":
			err = Faultf(rewards.BadInput, "this server does not read files at a path that a client sends; send the frames in video_b64")
		case "image_ipc":
			err = Faultf(rewards.BadInput, "this server cannot read the GPU memory of a client; send image_b64")
		default:
			err = strictjson.ErrUnknownKey
		}
		return err
	})
	if err != nil {
		return "", nil, err
	}
	if video != nil {
		media = append(media, video)
	}
	switch {
	case !hasText:
		return "", nil, errors.New(`no "text"`)
	case media == nil && pl.Refused == nil:
		return "", nil, Faultf(rewards.BadInput, "the turn has no image_b64 and no video_b64")
	}
	return text, media, nil
}

// readPicture decodes the base64 of a picture. One of another format than those that
// can be decoded refuses its sample.
func readPicture(v strictjson.Text, pl *Plan) (*rewards.Media, error) {
	data, err := v.Base64()
	if err != nil {
		return nil, err
	}
	m := Picture(data)
	if m == nil {
		pl.Refuse("a picture is neither JPEG nor PNG nor WebP")
	}
	return m, nil
}

// readFrames decodes the base64 of a video's pictures.
func readFrames(v strictjson.Text, pl *Plan) (*rewards.Media, error) {
	m := &rewards.Media{Kind: rewards.Video, Encoding: rewards.Frames, DType: "U8"}
	err := v.Array(func(_ int, v strictjson.Text) error {
		frame, err := readPicture(v, pl)
		if frame != nil {
			m.Frames = append(m.Frames, frame.Data)
		}
		return err
	})
	if err == nil && len(m.Frames) == 0 && pl.Refused == nil {
		err = errors.New("a video needs frames")
	}
	return m, err
}

func (u *unirlBatch) answer(results []*wire.Result) (Reply, *Fault) {
	if f := NoneAccepted(results); f != nil && f.Transient() {
		return Reply{}, f
	}
	scores, faults := make([]pairs, len(u.items)), make([]pairs, len(u.items))
	passing := false
	next := 0
	for i, item := range u.items {
		for _, name := range item.rewards {
			r := results[next]
			next++
			passing = passing || MayPass(r)
			if v, ok := scoreOf(r); ok {
				scores[i] = append(scores[i], pair{name, subMetrics(v, r)})
			}
			if r.Outcome != rewards.Scored {
				_, text := failureOf(r)
				if r.Fallback != nil && r.Fallback.Value != nil {
					text += "; the score is the reward's fallback, " + r.Fallback.Policy
				}
				faults[i] = append(faults[i], pair{name, text})
			}
		}
	}
	out := pairs{{"results", scores}, {"errors", faults}}
	if u.identity {
		list := make([]pairs, len(u.items))
		for i, item := range u.items {
			list[i] = item.identity
		}
		out = append(out, pair{"identities", list})
	}
	if u.versioned {
		out = append(out, pair{"protocol_version", unirlVersion})
	}
	return JSONReply(http.StatusOK, passing, out), nil
}

// subMetrics are the numbers of a result: the score, then what else is a number and
// about the sample, by name. Clients refuse a bool or a null among them.
func subMetrics(score float64, r *wire.Result) pairs {
	out := pairs{{scoreColumn, decimal(score)}}
	for key, v := range r.ExtraInfo {
		_, flag := v.(bool)
		if n, ok := number(v); ok && !flag && key != scoreColumn && !ownColumn(key) {
			out = append(out, pair{key, decimal(n)})
		}
	}
	slices.SortFunc(out[1:], func(a, b pair) int { return cmp.Compare(a.key, b.key) })
	return out
}

// tellHealth answers GET /health, which clients of UniRL and Flow-Factory ask before they
// send anything: 200 if a worker is there and samples are taken, else 503, with every
// reward and the states of the workers that serve it.
func tellHealth(s *State) Reply {
	if s.Reward != "" {
		if _, f := LookUp(s.Rewards, s.Reward); f != nil {
			f.Status = http.StatusNotFound
			return f.json()
		}
	}
	states := map[string][]string{}
	for _, name := range names(s.Rewards) {
		states[name] = []string{}
	}
	ready := false
	for _, w := range s.Workers {
		ready = ready || w.State == wire.WorkerReady
		for _, p := range w.Profiles {
			for _, name := range []string{p.Name, cmp.Or(p.Name, "default")} {
				if _, ok := states[name]; ok {
					states[name] = append(states[name], w.State)
					break
				}
			}
		}
	}
	status, word := http.StatusOK, "ok"
	switch {
	case s.Draining:
		status, word = http.StatusServiceUnavailable, "draining"
	case !ready:
		status, word = http.StatusServiceUnavailable, "no worker is ready"
	}
	a := JSONReply(status, status != http.StatusOK, pairs{{"status", word}, {"rewards", states}})
	a.Pause = true
	return a
}

// tellRewards answers GET /rewards.
func tellRewards(s *State) Reply {
	return JSONReply(http.StatusOK, false, map[string]any{"rewards": names(s.Rewards)})
}

// names are the rewards that have one, sorted; the default one may be there under its
// name as well.
func names(all []Reward) []string {
	list := []string{}
	for i := range all {
		if all[i].Name != "" {
			list = append(list, all[i].Name)
		}
	}
	slices.Sort(list)
	return list
}

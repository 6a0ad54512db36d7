package server

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/rewardloop/rewardloop/internal/strictjson"
	"github.com/rewardloop/rewardloop/loop"
	"github.com/rewardloop/rewardloop/loop/step"
	"github.com/rewardloop/rewardloop/rewards"
	"github.com/rewardloop/rewardloop/server/compat"
	"github.com/rewardloop/rewardloop/wire"
)

// stepRewards answers GET /v1/runs/{run}/steps/{step}/rewards: what is complete of the step's
// rewards, or with chunk a chunk of them, as JSON or, where Accept asks for
// application/octet-stream, as safetensors.
//
//	split=train|val   the step's; default train
//	wait=30           seconds to wait for the end of the step, or for the chunk, at most 60; default 0
//	chunk=0           which chunk, from 0; the same again for who asks again
//	n=16              prompt groups in a chunk; default 0: all that are left, once the step is over
//	order=completion|index   of chunks
//
// A step that failed at its deadline is answered with 422, one whose rows were dropped
// with 410, one that nobody knows with 404.
func (s *Server) stepRewards(c *gin.Context) {
	t, ok := s.fetchOf(c)
	if !ok {
		return
	}
	res, err := s.loop.Rewards(c.Request.Context(), c.Param("run"), 0, t)
	if err != nil {
		s.noStep(c, err)
		return
	}
	status := http.StatusOK
	if res.State == wire.StepFailed {
		status = http.StatusUnprocessableEntity
	}
	if status == http.StatusOK && strings.Contains(c.GetHeader("Accept"), binaryType) {
		body, err := tensors(res)
		if err != nil {
			s.refuse(c, compat.Faultf(rewards.Internal, "%v", err))
			return
		}
		s.write(c, compat.Reply{Status: status, ContentType: binaryType, Body: body})
		return
	}
	s.write(c, compat.JSONReply(status, false, res))
}

const binaryType = "application/octet-stream"

// fetchOf reads the query; it answers a bad one itself.
func (s *Server) fetchOf(c *gin.Context) (t wire.Fetch, ok bool) {
	if t.Split, t.Step, ok = s.stepOf(c); !ok {
		return t, false
	}
	n, ok := s.bounded(c, "n", 0, math.MaxInt32)
	if !ok {
		return t, false
	}
	chunk, ok := s.bounded(c, "chunk", step.All, math.MaxInt32)
	if !ok {
		return t, false
	}
	if chunk == step.All && (c.Query("n") != "" || c.Query("order") != "") {
		s.refuse(c, compat.Faultf(rewards.Malformed, "n and order apply to a chunk: give the chunk too, beginning with chunk=0"))
		return t, false
	}
	t.Groups, t.Chunk, t.Order = int64(n), int64(chunk), c.DefaultQuery("order", wire.ByCompletion)
	if t.Order != wire.ByCompletion && t.Order != wire.ByIndex {
		s.refuse(c, compat.Faultf(rewards.Malformed, "order=%q: want %s or %s", strictjson.Clip(t.Order), wire.ByCompletion, wire.ByIndex))
		return t, false
	}
	const most = wire.MaxFetchWaitMS / 1000
	wait, err := strconv.ParseFloat(c.DefaultQuery("wait", "0"), 64)
	if err != nil || !(wait >= 0 && wait <= most) {
		s.refuse(c, compat.Faultf(rewards.Malformed, "wait=%q: want seconds from 0 to %d; ask again for longer", strictjson.Clip(c.Query("wait")), most))
		return t, false
	}
	t.WaitMS = int64(wait * 1000)
	return t, true
}

// stepOf reads which step a path is about; it answers a bad one itself.
func (s *Server) stepOf(c *gin.Context) (split rewards.Split, step int64, ok bool) {
	step, err := strconv.ParseInt(c.Param("step"), 10, 64)
	if err != nil {
		s.refuse(c, compat.Faultf(rewards.Malformed, "step %q: want a whole number", strictjson.Clip(c.Param("step"))))
		return "", 0, false
	}
	split = rewards.Split(c.DefaultQuery("split", string(rewards.Train)))
	if split != rewards.Train && split != rewards.Val {
		s.refuse(c, compat.Faultf(rewards.Malformed, "split=%q: want train or val", strictjson.Clip(string(split))))
		return "", 0, false
	}
	return split, step, true
}

// noStep answers for a step that cannot be read.
func (s *Server) noStep(c *gin.Context, err error) {
	switch {
	case errors.Is(err, context.Canceled):
		c.Status(statusGone) // for log and metrics; nobody reads it
		c.Abort()
	case errors.Is(err, loop.ErrUnknown):
		s.refuse(c, &compat.Fault{Status: http.StatusNotFound, Class: "not_found", Message: rewards.MessageOf(err)})
	case errors.Is(err, rewards.Expired):
		s.refuse(c, &compat.Fault{Status: http.StatusGone, Class: rewards.Expired, Message: rewards.MessageOf(err)})
	case errors.Is(err, loop.ErrStopped):
		s.refuse(c, compat.Faultf(rewards.Draining, "%v", err))
	default:
		s.refuse(c, compat.Faultf(rewards.ClassOf(err), "%s", rewards.MessageOf(err)))
	}
}

// step answers GET /v1/runs/{run}/steps/{step}: how the step is, and who it waits for.
func (s *Server) step(c *gin.Context) {
	split, step, ok := s.stepOf(c)
	if !ok {
		return
	}
	d, err := s.loop.Step(c.Param("run"), split, step)
	if err != nil {
		s.noStep(c, err)
		return
	}
	s.write(c, compat.JSONReply(http.StatusOK, false, d))
}

// stepTrace answers GET /v1/runs/{run}/steps/{step}/trace: what `rewardloop trace` reads.
func (s *Server) stepTrace(c *gin.Context) {
	split, step, ok := s.stepOf(c)
	if !ok {
		return
	}
	t, err := s.loop.Trace(c.Param("run"), split, step)
	if err != nil {
		s.noStep(c, err)
		return
	}
	s.write(c, compat.JSONReply(http.StatusOK, false, t))
}

// tensors is a chunk as safetensors: indices I64 [B] (-1: the sample had none), rm_scores
// F32 [B, 1] and component/<name> F32 [B] (NaN: there is none), rm_valid BOOL [B]. The
// rest of the answer is in __metadata__.rewards, as JSON without these columns.
func tensors(res *wire.Rewards) ([]byte, error) {
	own := *res
	own.Indices, own.Scores, own.Valid, own.Components = nil, nil, nil, nil
	rest, err := json.Marshal(&own)
	if err != nil {
		return nil, fmt.Errorf("the step cannot be written as JSON: %w", err)
	}
	head := map[string]any{"__metadata__": map[string]string{"rewards": string(rest)}}
	var data []byte
	put := func(name, dtype string, shape []int, each func(i int) []byte) {
		begin := len(data)
		for i := range shape[0] {
			data = append(data, each(i)...)
		}
		head[name] = map[string]any{"dtype": dtype, "shape": shape, "data_offsets": [2]int{begin, len(data)}}
	}
	n := len(res.IDs)
	put("indices", "I64", []int{n}, func(i int) []byte {
		at := int64(-1)
		if res.Indices[i] != nil {
			at = *res.Indices[i]
		}
		return binary.LittleEndian.AppendUint64(nil, uint64(at)) //nolint:gosec // two's complement is what I64 is
	})
	put("rm_scores", "F32", []int{n, 1}, func(i int) []byte { return float(res.Scores[i]) })
	for _, name := range slices.Sorted(maps.Keys(res.Components)) {
		put("component/"+name, "F32", []int{n}, func(i int) []byte { return float(res.Components[name][i]) })
	}
	put("rm_valid", "BOOL", []int{n}, func(i int) []byte {
		if res.Valid[i] {
			return []byte{1}
		}
		return []byte{0}
	})
	header, err := json.Marshal(head)
	if err != nil {
		return nil, fmt.Errorf("the header cannot be written as JSON: %w", err)
	}
	for len(header)%8 != 0 {
		header = append(header, ' ')
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), data...), nil
}

// float is a value as F32, NaN where there is none.
func float(v *float64) []byte {
	x := float32(math.NaN())
	if v != nil {
		x = float32(*v)
	}
	return binary.LittleEndian.AppendUint32(nil, math.Float32bits(x))
}
